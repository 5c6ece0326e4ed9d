"""Faults of a set under controllers, a kind a module: what each does, how it continues and how it ends."""
