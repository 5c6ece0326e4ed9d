"""One index file: a hash table on disk from message keys to positions in the commit log. Upstream: IndexFile.

Invariant: entries are in log order and never rewritten. Each entry points to the entry before it in its slot's chain, so
entries can be cut from the end exactly. The header is written when the file is synced or cut; after a crash, entries above the
header's count are put again. A search compares only hashes, so the caller must compare the keys."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import mul
from struct import Struct
from sys import byteorder
from typing import TYPE_CHECKING

from messagestore.bulk.presence import NUMPY
from mqruntime.javahash import java_string_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mqruntime.segments import SegmentFile

HEADER = Struct(
    ">"  # offset field
    "q"  #  0 begin_timestamp    store time of the first indexed record, ms
    "q"  #  8 end_timestamp      of the last one
    "q"  # 16 begin_phy          position of the first indexed record
    "q"  # 24 end_phy            of the last one
    "i"  # 32 used_slots
    "i"  # 36 index_count        number of the next entry; the first one is 1
)
SLOT = Struct(">i")  # number of the newest entry of a chain; 0 = none
ENTRY = Struct(
    ">"  # offset field
    "i"  #  0 key_hash
    "q"  #  4 phy                position of the record
    "i"  # 12 seconds            between begin_timestamp and the record's store time
    "i"  # 16 previous           entry of the same slot; 0 = end of the chain
)
SLOTS_AT, SLOT_SIZE, ENTRY_SIZE = HEADER.size, SLOT.size, ENTRY.size
FIRST_ENTRY = 1
I32_MAX = 2**31 - 1
U32_MASK = 2**32 - 1
RESERVE_STEP_BYTES = 64 << 10
PAUSE = -1  # yielded from time to time in a long chain
DOUBT = -2  # yielded at the end of a broken chain
PAUSE_STEPS = 4_096
ROUNDING_MS = 1_000  # entries hold whole seconds

KEY_BYTES_MAX = 255  # longest key that is hashed directly
POWERS = [pow(31, power, 1 << 32) for power in range(KEY_BYTES_MAX + 1)]
WEIGHTS = [POWERS[:length][::-1] for length in range(KEY_BYTES_MAX + 1)]
"""By text length: the factor of each UTF-16 unit in the hash. POWERS holds the factor of the prefix's hash."""


def key_hash(prefix_hash: int, key: bytes) -> int:
    """Upstream's hash of a text, never negative. The text is a prefix with the hash `prefix_hash`, followed by `key`
    (UTF-8)."""
    length = len(key)
    if length <= KEY_BYTES_MAX and key.isascii():  # the same as longer_hash, but faster
        value = sum(map(mul, key, WEIGHTS[length]), prefix_hash * POWERS[length]) & U32_MASK
    else:
        value = longer_hash(prefix_hash, key)
    if value > I32_MAX:
        value = (1 << 32) - value
    return value if value <= I32_MAX else 0  # the absolute value of the least int does not exist


def longer_hash(prefix_hash: int, text: bytes) -> int:
    """The unsigned `String.hashCode` of a prefix with the hash `prefix_hash`, followed by `text` (UTF-8)."""
    if text.isascii() and len(text) <= KEY_BYTES_MAX:
        length = len(text)
        return int(sum(map(mul, text, WEIGHTS[length]), prefix_hash * POWERS[length])) & U32_MASK
    units = len(text.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")) // 2
    own = java_string_hash(text.decode("utf-8", "replace"))
    return (prefix_hash * pow(31, units, 1 << 32) + own) & U32_MASK


def topic_prefix_hash(topic: bytes) -> int:
    """The hash of `topic#`, which every key of a topic starts with."""
    return java_string_hash(topic.decode("utf-8", "replace") + "#")


def file_size_for(slots: int, entries: int) -> int:
    return HEADER.size + SLOT.size * slots + ENTRY.size * entries


class IndexFile:
    """`slots` and `entries` are the geometry, which the file itself does not record. `header` is the file's beginning, which
    the caller has read without the mapping: a new file may have no disk block there, and on a full file system in memory a read
    through the mapping would then kill the process."""

    def __init__(self, file: SegmentFile, slots: int, entries: int, header: bytes) -> None:
        self.file = file
        self.view = file.view()
        self._slots = slots
        self._entries_max = entries
        self._entries_at = HEADER.size + SLOT.size * slots
        self._reserved_end = 0
        self.cuts = 0  # each cut removed entries
        self.ready_end = 0  # entries below this have disk blocks; the last place is never used
        (
            self.begin_timestamp, self.end_timestamp, self.begin_phy, self.end_phy, self._used_slots, count,
        ) = HEADER.unpack(header)  # fmt: skip
        self.index_count = min(max(count, FIRST_ENTRY), entries)

    @property
    def empty(self) -> bool:
        return bool(self.index_count == FIRST_ENTRY)

    def room_for(self, keys: int) -> bool:
        """Whether `keys` more entries fit. As in upstream, the file's last place is never used."""
        return keys <= self.places_left

    @property
    def places_left(self) -> int:
        return int(self._entries_max - self.index_count)

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def entries_max(self) -> int:
        return self._entries_max

    async def read_entries(self, first: int, end: int) -> bytes:
        """Entries [first, end), read around the mapping. Raises OSError."""
        at = self._entries_at
        return await self.file.read_cold(at + ENTRY_SIZE * first, at + ENTRY_SIZE * end)

    async def read_slots(self, first: int, end: int) -> bytes:
        """Slots [first, end), read around the mapping. Raises OSError."""
        return await self.file.read_cold(SLOTS_AT + SLOT_SIZE * first, SLOTS_AT + SLOT_SIZE * end)

    def hashes_of_first(self) -> set[int]:
        """Hashes that this file lists for its first record."""
        return self._hashes_at(self.begin_phy, range(FIRST_ENTRY, self.index_count))

    def hashes_of_last(self) -> set[int]:
        """Hashes that this file lists for its last record."""
        return self._hashes_at(self.end_phy, range(self.index_count - 1, FIRST_ENTRY - 1, -1))

    def _hashes_at(self, phy: int, numbers: range) -> set[int]:
        found = set[int]()
        for number in numbers:
            value, at, _, _ = self._entry(number)
            if at != phy:
                break
            found.add(value)
        return found

    def back_from(self, number: int, limit: int, steps: int) -> tuple[int, int]:
        """Follow the chain back from entry `number` to the first entry below `limit`, in at most `steps` steps. Returns (that
        entry, 0 for none, or the entry reached if no steps are left; steps left)."""
        while number >= limit and steps:
            above, number = number, self._entry(number)[3] if number < self.index_count else 0
            steps -= 1
            if number >= above:
                return 0, steps
        return number, steps

    @property
    def place(self) -> tuple[int, int, int, int, int, int]:
        """Everything needed to put entries into `view`: slots, position of entry 0, number of the next entry, number of the
        first entry without reserved blocks, store time of the first record, slots in use."""
        return (
            self._slots,
            self._entries_at,
            self.index_count,
            self.ready_end,
            self.begin_timestamp,
            self._used_slots,
        )

    def grew(self, index_count: int, used_slots: int, phy: int, store_timestamp: int) -> None:
        """Note that entries below number `index_count` are in `view`, the last of them for the record at `phy`."""
        self.index_count, self._used_slots = index_count, used_slots
        self.end_phy, self.end_timestamp = phy, store_timestamp

    def reserve(self, keys: int) -> None:
        """Reserve disk blocks for `keys` more entries. Raises OSError (ENOSPC)."""
        end = self._entries_at + ENTRY.size * (self.index_count + keys)
        if end > self._reserved_end:
            end = min(-(-end // RESERVE_STEP_BYTES) * RESERVE_STEP_BYTES, self.file.size_bytes)
            self.file.reserve(end)
            self._reserved_end = end
            self.ready_end = min((end - self._entries_at) // ENTRY.size, self._entries_max)

    def put(self, hashes: list[int], phy: int, store_timestamp: int) -> None:
        """Put entries of the record at `phy`, which is above all other records in this file. The room must be reserved."""
        view, number = self.view, self.index_count
        if number == FIRST_ENTRY:
            self.begin_timestamp, self.begin_phy = store_timestamp, phy
        seconds = (store_timestamp - self.begin_timestamp) // 1000
        if not 0 <= seconds <= I32_MAX:
            seconds = 0 if seconds < 0 else I32_MAX
        for value in hashes:
            slot_at = SLOTS_AT + SLOT_SIZE * (value % self._slots)
            (previous,) = SLOT.unpack_from(view, slot_at)
            if not 0 < previous < number:
                previous = 0
                self._used_slots += 1
            ENTRY.pack_into(view, self._entries_at + ENTRY_SIZE * number, value, phy, seconds, previous)
            SLOT.pack_into(view, slot_at, number)
            number += 1
        self.index_count, self.end_phy, self.end_timestamp = number, phy, store_timestamp

    def put_many(
        self, hashes: NDArray[np.int64], phys: NDArray[np.int64], store_timestamps: NDArray[np.int64]
    ) -> None:
        """Put entries of many records, one row for each hash."""
        from messagestore.bulk.indexing import linked

        number = self.index_count
        if number == FIRST_ENTRY:
            self.begin_timestamp, self.begin_phy = int(store_timestamps[0]), int(phys[0])
        slots = self.view[SLOTS_AT : self._entries_at]
        entries = self.view[self._entries_at + ENTRY_SIZE * number :]
        seconds = (store_timestamps - self.begin_timestamp) // 1000
        self._used_slots += linked(slots, entries, number, hashes, phys, seconds)
        self.index_count = number + len(hashes)
        self.end_phy, self.end_timestamp = int(phys[-1]), int(store_timestamps[-1])

    def find(self, value: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Positions of records with a key whose hash is `value`, newest first. Entries hold whole seconds, so records slightly
        outside the times are included. Yields PAUSE from time to time: the file may then be cut, but not filled again. Yields
        DOUBT last if the chain does not lead back to its end, or leads out of the file."""
        if self.empty or self.begin_timestamp > end_ms or self.end_timestamp < begin_ms:
            return
        (number,) = SLOT.unpack_from(self.view, HEADER.size + SLOT.size * (value % self._slots))
        above, steps, cuts, leads_out = self.index_count, 0, self.cuts, False
        while 0 < number < above:  # a chain leads only back
            found, phy, seconds, previous = self._entry(number)
            stored_ms = self.begin_timestamp + seconds * 1000
            if found == value and stored_ms <= end_ms and stored_ms + ROUNDING_MS > begin_ms:
                leads_out |= phy > self.end_phy and cuts == self.cuts
                yield phy
            above, number, steps = number, previous, steps + 1
            if steps % PAUSE_STEPS == 0:
                yield PAUSE
        if (number or leads_out) and cuts == self.cuts:
            yield DOUBT

    def cut(self, phy: int) -> None:
        """Forget the records from `phy` on."""
        number = self.index_count
        while number > FIRST_ENTRY and (entry := self._entry(number - 1))[1] >= phy:
            number -= 1
            value, _, _, previous = entry
            SLOT.pack_into(self.view, HEADER.size + SLOT.size * (value % self._slots), previous)
            self._used_slots -= previous == 0
        self._end_at(number)

    def mend(self, phy: int) -> None:
        """Repair the file after a power cut. Entries of records below `phy` are whole, and everything else may be torn. Keep
        the whole entries and rebuild the slots. No entry of a record before torn entries is kept. Raises OSError (ENOSPC)."""
        self.reserve(0)
        first_at = self._entries_at + ENTRY.size * FIRST_ENTRY
        entries = self.view[first_at : self._entries_at + ENTRY.size * self.index_count]
        if NUMPY:
            from messagestore.bulk.indexing import relinked

            number, self._used_slots = relinked(
                self.view[HEADER.size : self._entries_at], entries, FIRST_ENTRY, phy
            )
        else:
            number, self._used_slots = self._relinked(entries, phy)
        torn = number < self.index_count and not phy <= self._entry(number)[1] <= self.end_phy
        self._end_at(number)
        if torn and not self.empty:
            self.cut(self.end_phy)

    def _relinked(self, entries: memoryview, phy: int) -> tuple[int, int]:
        """The same as `bulk.indexing.relinked`, without NumPy."""
        slots = array("i", bytes(SLOT.size * self._slots))
        number, before, used = FIRST_ENTRY, 0, 0
        for value, at, _, previous in ENTRY.iter_unpack(entries):
            if not before <= at < phy or value < 0:
                break
            slots[value % self._slots] = number
            used += previous == 0
            before = at
            number += 1
        if byteorder == "little":
            slots.byteswap()
        self.view[HEADER.size : self._entries_at] = memoryview(slots).cast("B")
        return number, used

    def _end_at(self, number: int) -> None:
        if number < self.index_count:
            end = self._entries_at + ENTRY.size * self.index_count
            start = self._entries_at + ENTRY.size * number
            self.view[start:end] = bytes(end - start)
            self.index_count = number
            self.cuts += 1
            if not self.empty:
                _, self.end_phy, seconds, _ = self._entry(number - 1)
                last_ms = self.begin_timestamp + seconds * 1000 + ROUNDING_MS - 1
                self.end_timestamp = min(self.end_timestamp, last_ms)
        self._write_header()

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        value, phy, seconds, previous = ENTRY.unpack_from(self.view, self._entries_at + ENTRY.size * number)
        return value, phy, seconds, previous

    def header(self) -> bytes:
        """The header's bytes."""
        return HEADER.pack(
            self.begin_timestamp, self.end_timestamp, self.begin_phy, self.end_phy, self._used_slots, self.index_count
        )  # fmt: skip

    def _write_header(self) -> None:
        self.view[: HEADER.size] = self.header()

    async def sync(self) -> None:
        """Sync the entries put before the call. Raises OSError if the disk fails."""
        self._write_header()
        await self.file.sync(0, self._entries_at + ENTRY.size * self.index_count)
