"""Whether records can be handled in bulk, which needs NumPy (the extra `bulk`).

Invariant: importing this module does not load NumPy; modules that need it are imported where they are used. Without NumPy
everything works more slowly, and every byte on disk is the same. Pure."""

from __future__ import annotations

from importlib.util import find_spec

NUMPY = find_spec("numpy") is not None
