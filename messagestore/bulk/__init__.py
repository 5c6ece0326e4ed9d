"""Thousands of records at once, with NumPy: what their queues and the index get, and whether they are sound."""
