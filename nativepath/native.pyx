# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, binding=False, embedsignature=False
"""What `nativepath.native.pyi` says, compiled. The modules of Python that do the same are the reference.

Invariant: memory is read and written through `Bytes` alone, which knows its end: what lies outside reads as zero, is not
written, and leaves a mark that the caller looks at. Nothing of a buffer is kept beyond a call but by its object."""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsStringAndSize, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

from zlib import crc32

SOURCES = 6

include "memory.pxi"
include "checksum.pxi"
include "frames.pxi"
include "signatures.pxi"
include "records.pxi"
include "ledger.pxi"
include "entries.pxi"
