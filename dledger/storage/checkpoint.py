"""The commit index on disk: DLedger 0.3's `checkpoint` file, with keys of this project for the durable end and for a cut in
progress.

Invariant: when the file was written, entries up to `committed_index` were durable here, and entries up to `synced_index` with
their index units. So a log that ends below one of these indexes is damaged. A start need not read the entries below
`synced_index`: their lists of members are in this file. While `cut_from` is set, no entry from this index on belongs to the
log, even if the data files hold it."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.raft.entries import NO_INDEX
from dledger.raft.membership import ConfigurationAt, decode_configurations, encode_configurations
from dledger.storage.keyvalues import parse_key_values, whole_number
from mqruntime.smallfiles import SmallFiles


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    end_index: int = NO_INDEX
    committed_index: int = NO_INDEX
    cut_from: int | None = None
    """The key `cutFrom`; Java ignores it."""
    synced_index: int = NO_INDEX
    """The key `syncedIndex`; Java ignores it, and rewrites the file without it."""
    configurations: tuple[ConfigurationAt, ...] = ()
    """The key `allMembers`: the lists of members in the entries up to `synced_index`, which no start reads, beginning with the
    list that is used at the log's beginning. Older versions wrote the key `members`, beginning with the last committed list."""


class CheckpointFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/checkpoint'."""

    def __init__(self, files: SmallFiles, name: str) -> None:
        self.files = files
        self.name = name

    async def load(self) -> LedgerCheckpoint:
        """The stored checkpoint; all indexes are -1 if there is no file. Raises BadKeyValues, MembersUnknown."""
        data = await self.files.read(self.name)
        if data is None:
            return LedgerCheckpoint()
        values = parse_key_values(self.name, data)
        known = {"syncedIndex": str(NO_INDEX)} | values
        if "members" in values:  # older lists are only in entries, so all entries are read
            known["syncedIndex"] = str(NO_INDEX)
        return LedgerCheckpoint(
            whole_number(self.name, values, "endIndex", least=NO_INDEX),
            whole_number(self.name, values, "committedIndex", least=NO_INDEX),
            whole_number(self.name, values, "cutFrom", least=0) if "cutFrom" in values else None,
            whole_number(self.name, known, "syncedIndex", least=NO_INDEX),
            decode_configurations(self.name, values.get("allMembers", values.get("members", ""))),
        )

    async def store(self, checkpoint: LedgerCheckpoint) -> None:
        """Stores `checkpoint`; durable on return. Raises OSError."""
        lines = [f"endIndex={checkpoint.end_index}", f"committedIndex={checkpoint.committed_index}"]
        if checkpoint.synced_index != NO_INDEX:
            lines.append(f"syncedIndex={checkpoint.synced_index}")
        if checkpoint.configurations:
            lines.append(f"allMembers={encode_configurations(checkpoint.configurations)}")
        if checkpoint.cut_from is not None:
            lines.append(f"cutFrom={checkpoint.cut_from}")
        await self.files.replace(self.name, ("\n".join(lines) + "\n").encode())
