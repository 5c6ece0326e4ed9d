"""Bytes that no honest peer sends, as data. They are whole connections, for real and for simulated ports."""
