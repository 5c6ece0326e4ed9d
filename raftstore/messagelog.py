"""The log of one member of a Raft-mode broker set, read from its store without changing it.

Invariant: messages come in the order of the log; each is complete, intact and the next of its queue. Anything else is reported
as damage, with its entry. The DLedger log may begin above 0 for two reasons: it follows a plain commit log, which then comes
first, or retention deleted earlier files. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import MembersUnknown, SnapshotDamaged, SnapshotUnknown
from dledger.raft.membership import is_members
from dledger.raft.snapshot import Begin, Snapshot
from dledger.storage.entry import index_header
from dledger.storage.inspection import (
    Inspection,
    MemberFiles,
    NamedFile,
    Stream,
    begun,
    check_files,
    check_held,
    entries_in,
)
from dledger.storage.snapshot import decode_snapshot, position_in
from messagestore.errors import BadSegments, StoreCorrupted
from mqruntime.slices import run_without_loop
from raftstore.census import OLD_LOG, Census
from raftstore.framing import PlacedMessage, facts_of, physical_offset
from raftstore.plainlog import plain_messages

OF_ANOTHER_KIND = "holds the state of a program: this is no store of a Raft-mode broker"

ONLY_OLD = "nothing was stored in Raft mode yet: this is the store of a broker without it"


class MessageLog:
    """`old` are the files of the plain commit log from before Raft mode; `member` are the files of the group's member."""

    def __init__(self, old: Sequence[NamedFile], member: MemberFiles) -> None:
        self._member = member
        self._snapshot, self._of_another_kind = place_in(member)
        files = () if self._snapshot is not None and self._snapshot.replaces_files else member.data
        begins = 0 if self._snapshot is None else self._snapshot.begin.position
        self._data, self._index = Stream("data", files, begins), Stream("index", member.index, 0)
        self._old = [file for file in old if int(file[0]) < self._data.first]
        self._only_old = bool(old) and not member.data
        self.census = Census(Inspection(member.name))

    def messages(self) -> Iterator[PlacedMessage]:
        """All messages, from the first on. `census` counts the messages that were returned so far. Raises BadKeyValues."""
        found, data = begun(self._member), self._data
        self.census = census = Census(found, data.file_bytes, data.first)
        if self._only_old:
            found.damaged(OLD_LOG, ONLY_OLD)
        if self._old:
            census.begin = int(self._old[0][0])
            yield from self._old_messages(census)
        first = index_header(data.rest(self._begin.position))
        if first is not None and first.position == self._begin.position:
            found.first_index, found.last_index = first.index, first.index - 1
        check_files(found, data, self._begin.position)
        if self._of_another_kind:
            found.damaged("snapshot", OF_ANOTHER_KIND)
        yield from self._raft_messages(census)
        check_held(found, data, NO_INDEX, self._member.currterm is not None)

    @property
    def _begin(self) -> Begin:
        """The log's start, and the entry before it as far as this is known."""
        return Begin(position=self._data.first) if self._snapshot is None else self._snapshot.begin

    def _raft_messages(self, census: Census) -> Iterator[PlacedMessage]:
        """The messages of the DLedger log. Java counts an entry with an intact header even if a crash has torn the body. A torn
        entry is not counted here if it is the last entry and is not known to be committed."""
        found, data = census.found, self._data
        torn: tuple[str, str] | None = None
        for position, entry in entries_in(
            found, data, self._index, bool, self._begin.position, self._begin.check
        ):
            name, place = f"entry {entry.index} at byte {position % data.file_bytes}", data.place(position)
            of_the_group = not entry.body or is_members(entry.body)  # opens a term, or lists members
            facts = None if of_the_group else facts_of(entry.body, position)
            if torn is not None:
                found.damaged(*torn)
            elif of_the_group:
                continue
            elif facts is None:
                torn = place, f"{name} is no message that is whole"
            elif census.count(facts, name, place):
                yield PlacedMessage(physical_offset(position), entry.body, facts)
        if torn is None:
            return
        if found.last_index <= found.committed_index:
            found.damaged(*torn)
        elif not found.damage:
            leave_out_last(found, f"{torn[1]}, in {torn[0]}")

    def _old_messages(self, census: Census) -> Iterator[PlacedMessage]:
        divided = self._data.first
        try:
            for message in plain_messages(self._old, divided, self._data.file_bytes):
                if not census.count(message.facts, f"the message at {message.offset}", OLD_LOG):
                    return
                yield message
        except BadSegments as error:
            census.found.damaged(f"{error.folder}/{error.name}", error.why)
        except StoreCorrupted as error:
            census.found.damaged(OLD_LOG, f"{error.why}, at {error.offset} of what ends at {divided}")


def place_in(member: MemberFiles) -> tuple[Snapshot | None, bool]:
    """The snapshot with the log's start, None if there is none, and whether the snapshot's file holds something else."""
    if member.snapshot is None:
        return None, False
    try:
        snapshot = run_without_loop(decode_snapshot(f"{member.name}/snapshot", member.snapshot))
        position_in(snapshot)
    except (SnapshotDamaged, SnapshotUnknown, MembersUnknown):
        return None, True
    return snapshot, False


def leave_out_last(found: Inspection, why: str) -> None:
    """Remove the last entry from the log."""
    found.last_index -= 1
    found.bodies.pop()
    if found.terms[-1][0] > found.last_index:
        found.terms.pop()
    found.tail = why
