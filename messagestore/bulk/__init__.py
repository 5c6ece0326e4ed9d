"""Thousands of records at once, with NumPy: their queue and index entries, and whether their bytes are intact."""
