"""Decoders on hostile bytes, led by the lines that they run."""
