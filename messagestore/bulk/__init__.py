"""Read thousands of records at once with NumPy: their fields, and whether their bytes are intact."""
