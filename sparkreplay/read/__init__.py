"""One read: its request, its split into stretches, and the batches of a stretch."""
