"""The pages of a mapped file in the page cache, compared with reads that do not wait."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from mqruntime.pagecache import address_of, in_page_cache

PAGE = mmap.PAGESIZE


def reads_at_once(descriptor: int, start: int, end: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(end - start)], start, os.RWF_NOWAIT) == end - start
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            pytest.skip("this file system reads only with waiting")
        raise


def test_evicted_pages_are_distinguished_from_cached_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(64 * PAGE))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
        address = address_of(mapping)
        assert in_page_cache(address, 0, 64 * PAGE) and in_page_cache(address, 63 * PAGE + 1, 64 * PAGE)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
        held = mapping[5 * PAGE]  # comes back
        assert held == 0
        for start, end in (
            (0, 64 * PAGE),
            (0, 1),
            (5 * PAGE, 6 * PAGE),
            (5 * PAGE + 7, 5 * PAGE + 9),
            (60 * PAGE, 60 * PAGE + 1),
        ):
            assert in_page_cache(address, start, end) == reads_at_once(file.fileno(), start, end), (
                start,
                end,
            )
        assert in_page_cache(address, 5 * PAGE + 1, 6 * PAGE)
        mapping.close()


def test_an_empty_range_is_always_in_the_page_cache(tmp_path: Path) -> None:
    assert in_page_cache(0, 7, 7)


def test_pages_of_unknown_state_count_as_evicted() -> None:
    assert not in_page_cache(0, 0, PAGE), "nothing is mapped there"
