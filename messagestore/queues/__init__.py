"""Consume queues: their entries, files and ends, and reading through them."""
