"""What no honest peer sends, as data: whole connections' worth of bytes, for real ports and for simulated ones."""
