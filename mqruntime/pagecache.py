"""Which parts of a mapped file the kernel holds in memory.

Invariant: a query reads nothing, maps no page and never waits for the disk, however large its range is: `mincore` only
inspects the page cache."""

from __future__ import annotations

import mmap
from ctypes import PYFUNCTYPE, PyDLL, addressof, c_char, c_int, c_size_t, c_void_p

# it keeps the interpreter's lock: releasing that costs more than the call
_mincore = PYFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)(("mincore", PyDLL(None)))


def address_of(mapping: mmap.mmap) -> int:
    """Where a writable mapping begins in this process; it stays there until it is closed."""
    return addressof(c_char.from_buffer(mapping))


def in_page_cache(address: int, start: int, end: int) -> bool:
    """Whether bytes [start, end) of the open mapping at `address` can be read without the disk; False if the kernel does not
    report it. True for an empty range."""
    if start >= end:
        return True
    start -= start % mmap.PAGESIZE
    size = end - start
    pages = bytearray(-(-size // mmap.PAGESIZE))
    return not _mincore(address + start, size, addressof(c_char.from_buffer(pages))) and 0 not in pages
