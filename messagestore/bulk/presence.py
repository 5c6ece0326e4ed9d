"""Whether records can be taken in bulk: NumPy is installed (the extra `bulk`).

Invariant: nothing here loads NumPy; what needs it is imported where it is used. Without it everything works as with it, slower,
and every byte on disk is the same. Pure."""

from __future__ import annotations

from importlib.util import find_spec

NUMPY = find_spec("numpy") is not None
