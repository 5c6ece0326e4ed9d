"""Snapshot encoding of the replicated state: a line of JSON with the version, then a line for each broker set, sorted by name.

Invariant: equal states have equal encodings, whichever events led to them. Decoding returns the state that was encoded. An
unknown version is rejected, never guessed. Encoding and decoding go in slices, none of which blocks the event loop for long.
Pure."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from controller.state import Replica, Replicas, ReplicasState, SyncState
from dledger.raft.errors import SnapshotUnknown

VERSION = 1
SLICE_BYTES = 64 << 10
"""Lines of about this size take some ms to encode, whether they hold many sets or one set with a thousand brokers."""
NAMES_AT_ONCE = 4_096
"""This number of names is sorted in a few ms; sorting a hundred thousand would block the event loop for a tenth of a second."""
Row = dict[str, Any]


def encoded(state: ReplicasState) -> Iterator[bytes]:
    """The pieces of the encoding; pieces are empty while names are sorted. `state` must not change before the last piece."""
    names = chain(state.replicas, (name for name in state.sync_states if name not in state.replicas))
    runs: list[list[str]] = []
    while run := sorted(islice(names, NAMES_AT_ONCE)):
        runs.append(run)
        if len(run) == NAMES_AT_ONCE:
            yield b""
    yield line({"version": VERSION, "sets": sum(map(len, runs))})
    piece = bytearray()
    for name in heapq.merge(*runs):
        piece += line(row_of(state, name))
        if len(piece) >= SLICE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def decoded(data: bytes | bytearray, into: ReplicasState) -> Iterator[None]:
    """Fill the empty state `into`, a slice in each step.

    Raises: SnapshotUnknown if another version wrote the data. Damage is found earlier, by the snapshot's checksum."""
    head, at = line_at(data, 0)
    sets, rows = sets_in(read_line(head)), 0
    while at < len(data):
        slice_end = min(at + SLICE_BYTES, len(data))
        while at < slice_end:
            text, at = line_at(data, at)
            rows += 1
            row = read_line(text)
            try:
                take_row(into, row)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise unreadable(text) from error
        yield
    if sets != rows:
        raise SnapshotUnknown(f"the controllers' state has {rows} broker sets", f"{sets} of them")


def line_at(data: bytes | bytearray, at: int) -> tuple[bytes, int]:
    """The line that begins at `at`, and the start of the next line."""
    end = data.find(b"\n", at)
    end = len(data) if end < 0 else end
    return bytes(data[at:end]), end + 1


def read_line(text: bytes) -> Any:
    """Decode one line. Raises SnapshotUnknown."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(text) from error


def unreadable(text: bytes) -> SnapshotUnknown:
    return SnapshotUnknown(
        f"the controllers' state has the line {text[:80]!r}", "lines of one broker set each"
    )


def sets_in(head: Any) -> Any:
    """The number of broker sets that follow. Raises SnapshotUnknown."""
    if not isinstance(head, dict) or head.get("version") != VERSION:
        found = head.get("version") if isinstance(head, dict) else None
        raise SnapshotUnknown(f"the controllers' state is of form {found}", f"form {VERSION}")
    return head.get("sets")


def line(row: Row) -> bytes:
    """Encode one line. The line is ASCII, because names need not be valid UTF-8."""
    return json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def row_of(state: ReplicasState, name: str) -> Row:
    row: Row = {"name": name}
    replicas, sync_state = state.replicas.get(name), state.sync_states.get(name)
    if replicas is not None:
        row["cluster"] = replicas.cluster_name
        row["next"] = replicas.next_broker_id
        row["forgotten"] = sorted(replicas.forgotten)
        row["brokers"] = [
            [broker_id, replica.address, replica.check_code]
            for broker_id, replica in sorted(replicas.by_id.items())
        ]
        starts = [
            [broker_id, replica.start_number, replica.incarnation]
            for broker_id, replica in sorted(replicas.by_id.items())
            if replica.start_number or replica.incarnation
        ]
        if starts:
            row["starts"] = starts
        saying = sorted(broker_id for broker_id, replica in replicas.by_id.items() if replica.says_code)
        if saying:
            row["sayingCodes"] = saying
    if sync_state is not None:
        row["master"] = sync_state.master_id
        row["masterEpoch"] = sync_state.master_epoch
        row["members"] = sorted(sync_state.members)
        row["setEpoch"] = sync_state.set_epoch
        row["eligible"] = sorted(sync_state.eligible)
    return row


def take_row(state: ReplicasState, row: Row) -> None:
    name = row["name"]
    if "cluster" in row:
        by_id = {broker_id: Replica(address, code) for broker_id, address, code in row["brokers"]}
        for broker_id, start_number, incarnation in row.get("starts", ()):
            by_id[broker_id].start_number, by_id[broker_id].incarnation = start_number, incarnation
        for broker_id in row.get("sayingCodes", ()):
            by_id[broker_id].says_code = True
        state.replicas[name] = Replicas(row["cluster"], by_id, row["next"], set(row["forgotten"]))
    if "masterEpoch" in row:
        state.sync_states[name] = SyncState(
            row["master"],
            row["masterEpoch"],
            frozenset(row["members"]),
            row["setEpoch"],
            frozenset(row["eligible"]),
        )
