"""Bytes that no honest peer sends, as data: whole connections' worth of them, for real ports and for simulated ones."""
