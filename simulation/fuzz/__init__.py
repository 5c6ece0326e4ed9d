"""Decoders on bytes that nobody means well with, led by the lines that they run."""
