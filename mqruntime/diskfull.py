"""Which errors of a disk may pass by themselves.

Invariant: an operation that fails with one of them has left things as they were, and may be tried again. A sync is none of
these operations, whatever its error: the kernel forgets the pages that it could not write."""

from __future__ import annotations

import errno

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Values of OSError.errno. Every other one is a failed disk."""
