"""Bugs planted into product code for the length of a run, to prove that the checks find them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {}
