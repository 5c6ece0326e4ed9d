"""The content of one simulated file, as its process sees it and as a power cut would leave it.

Invariant: bytes of a synced page survive every crash. Whether a page that was written but not synced survives a power cut,
perhaps only in part, follows from the seed. A kill of the process alone loses nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

PAGE_BYTES = 4096
SECTOR_BYTES = 512
TORN_SHARE = 0.1  # of this share of pages only some sectors survive


class Inode:
    """`data` is the page cache. The copy on disk is made at the first sync (None: all zero)."""

    def __init__(self, size_bytes: int) -> None:
        self.data = bytearray(size_bytes)
        self.allocated_end = 0  # disk blocks exist up to here
        self._disk: bytearray | None = None
        self._dropped: dict[
            int, bytes
        ] = {}  # page number -> content that the kernel wrongly believes written

    @staticmethod
    def durable(content: bytes) -> Inode:
        """A file whose content was synced before it got its name."""
        inode = Inode(0)
        inode.data = bytearray(content)
        inode._disk = bytearray(content)
        return inode

    def copy(self) -> Inode:
        """Another file with the same content, all of it on disk."""
        copied = Inode.durable(bytes(self.data))
        copied.allocated_end = self.allocated_end
        return copied

    def pages(self, start: int, end: int) -> tuple[int, int]:
        """The bytes of all pages that [start, end) touches."""
        return start // PAGE_BYTES * PAGE_BYTES, min(-(-end // PAGE_BYTES) * PAGE_BYTES, len(self.data))

    def written(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that lie in pages with nonzero bytes, in order. They consist of whole pages, because a file
        system knows only of pages whether they were written."""
        found: list[tuple[int, int]] = []
        for page in range(start // PAGE_BYTES * PAGE_BYTES, end, PAGE_BYTES):
            if any(self.data[page : page + PAGE_BYTES]):
                first, last = max(page, start), min(page + PAGE_BYTES, end)
                if found and found[-1][1] == first:
                    first = found.pop()[0]
                found.append((first, last))
        return found

    def persist(self, start: int, content: bytes) -> None:
        """Write whole pages from `start` to the disk, except pages that the kernel believes it has written."""
        disk = self._on_disk()
        if not self._dropped:
            disk[start : start + len(content)] = content
            return
        for at in range(0, len(content), PAGE_BYTES):
            page = content[at : at + PAGE_BYTES]
            number = (start + at) // PAGE_BYTES
            if self._dropped.get(number) != page:
                self._dropped.pop(number, None)
                disk[start + at : start + at + len(page)] = page

    def overwrite(self, content: bytes) -> None:
        """Write all of a small file that nobody maps."""
        self.data = bytearray(content)

    def append(self, content: bytes) -> None:
        """Append to a small file."""
        self._on_disk().extend(bytes(len(content)))  # the new length may be on disk without the content
        self.data += content

    def persist_all(self) -> None:
        """A small file's content and length reach the disk."""
        self._disk = bytearray(self.data)

    def drop(self, start: int, content: bytes) -> None:
        """Called when a sync fails: the kernel marks the pages as clean, although the disk does not have their bytes. A later
        sync does not write them."""
        disk = self._on_disk()
        for at in range(0, len(content), PAGE_BYTES):
            page, number = content[at : at + PAGE_BYTES], (start + at) // PAGE_BYTES
            self._dropped.pop(number, None)
            if disk[start + at : start + at + len(page)] != page:
                self._dropped[number] = page

    def soil(self, start: int, end: int) -> None:
        """Make the pages dirty again, so that the kernel writes them."""
        first, last = self.pages(start, end)
        for number in range(first // PAGE_BYTES, -(-last // PAGE_BYTES)):
            self._dropped.pop(number, None)

    def durably_holds(self, content: bytes) -> bool:
        return self._disk is not None and content in self._disk

    def durable_part(self, start: int, end: int) -> bytes:
        """The bytes that every power cut leaves; none for a file that was never synced."""
        return b"" if self._disk is None else bytes(self._disk[start:end])

    def survive_kill(self) -> None:
        """The next process gets copies of the pages, which views of the dead process cannot change."""
        self.data = bytearray(self.data)

    def survive_power_cut(self, keeps: Callable[[], bool], chance: random.Random) -> None:
        """Keep synced pages, and other pages for which `keeps` returns True."""
        disk = self._on_disk()
        image = bytearray(disk)
        if self.data != disk:
            for start in range(0, len(image), PAGE_BYTES):
                page = self.data[start : start + PAGE_BYTES]
                if page != disk[start : start + PAGE_BYTES] and keeps():
                    image[start : start + PAGE_BYTES] = page
                    if chance.random() < TORN_SHARE:
                        self._tear(image, start, chance)
        self._dropped.clear()
        self.data = image
        self._disk = bytearray(image)

    def flip_bit(self, offset: int, bit: int) -> None:
        """Flip one bit, as a decaying disk does. It changes both in the page cache and on the disk."""
        self.data[offset] ^= 1 << bit
        self._on_disk()[offset] ^= 1 << bit

    def _tear(self, image: bytearray, start: int, chance: random.Random) -> None:
        for sector in range(start, min(start + PAGE_BYTES, len(image)), SECTOR_BYTES):
            if chance.random() < 0.5:
                image[sector : sector + SECTOR_BYTES] = self._on_disk()[sector : sector + SECTOR_BYTES]

    def _on_disk(self) -> bytearray:
        if self._disk is None:
            self._disk = bytearray(len(self.data))
        return self._disk
