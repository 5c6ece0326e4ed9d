"""The checks of entries in a log of our member: several files, restarts, truncated entries."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from pathlib import Path

import pytest

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.settings import DLedgerSettings
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.smallfiles import RealSmallFiles
from sparkreplay.store.files import Files, LocalFiles
from sparkreplay.store.ledger import StoredLedger
from sparkreplay.store.ledgerindex import LedgerIndex

NAME = "dledger-n0"
SETTINGS = DLedgerSettings(data_file_bytes=4096, index_file_bytes=1024, entry_bytes_max=1024)
LOG = StoredLedger(NAME)


def written(root: Path, seed: int) -> None:
    """A few restarts of a member. Each truncates the last entries of the run before."""
    chance, term = random.Random(seed), 0

    async def live() -> None:
        store = Store(RealSmallFiles(root), RealSegmentDirectory(root), NAME, SETTINGS, ["n0"])
        found = await store.open()
        first, cut = found.log.last_index + 1, None
        if first:
            cut = first = first - chance.randint(1, 5)
        for _ in range(chance.randint(2, 5)):
            count = chance.randint(1, 12)
            bodies = [chance.randbytes(chance.choice((0, 9, 300, 900))) for _ in range(count)]
            entries = [Entry(first + at, term, body) for at, body in enumerate(bodies)]
            vote = Vote(term) if term != found.vote.term else None
            await store.persist([PersistThenSend(vote, cut, tuple(entries), ())])
            first, cut = first + count, None
        await store.close(max(-1, first - 6))  # the next run truncates entries that were never committed

    for _ in range(4):
        term += 1
        asyncio.run(live())


def broken(files: Files) -> list[int]:
    end, segments = LOG.committed(files), LOG.segments(files)
    return [at for segment in segments for at, _ in LOG.broken(files, segment, min(end, segment.end_offset))]


@pytest.mark.parametrize("seed", range(6))
def test_a_members_own_entries_verify_and_each_flipped_bit_is_reported(tmp_path: Path, seed: int) -> None:
    written(tmp_path, seed)
    files, chance = LocalFiles(str(tmp_path)), random.Random(seed)
    assert broken(files) == []
    with closing(LedgerIndex(files, NAME)) as index:
        units = [index.unit(number) for number in range(LOG.committed_index(files) + 1)]
    assert units[-1].position > 2 * SETTINGS.data_file_bytes and len({unit.term for unit in units}) > 2
    for unit in chance.sample(units, 12):
        start = unit.position // SETTINGS.data_file_bytes * SETTINGS.data_file_bytes
        path = tmp_path / NAME / "data" / f"{start:020d}"
        whole = path.read_bytes()
        # the walk finds changes of magic, size, position, index and the sign of the term
        fields = [*range(17, 24), *range(32, 44), *range(48, unit.size)]
        changed = bytearray(whole)
        changed[unit.position - start + chance.choice(fields)] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        assert unit.position in broken(files)
        path.write_bytes(whole)
    assert broken(files) == []
