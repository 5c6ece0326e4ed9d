"""Runs decoders on hostile bytes. The search keeps and mutates inputs that run lines of code which no earlier input ran."""
