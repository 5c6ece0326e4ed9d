"""Decoders are run on hostile bytes. Inputs that run new lines guide the search."""
