"""Faults of a set under controllers, with one module for each kind: what it does, how it continues and how it ends."""
