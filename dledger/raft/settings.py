"""The settings of a group member: its timing and the sizes of its files. Upstream: DLedgerConfig.

Invariant: a heartbeat interval fits at least twice into the shortest election timeout, so one lost heartbeat deposes no leader.
Pure."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.frame import FRAME_BYTES_MAX

INDEX_UNIT_BYTES = 32
PUSHED_BYTES_MAX = FRAME_BYTES_MAX - (128 << 10)
"""The limit of an entry's body. A PUSH is one frame, and needs room for its other fields."""
PUSH_ENTRIES_LIMIT = 1 << 16
"""The limit of the number of entries in a PUSH. Millions of empty entries would stop a member for seconds."""


@dataclass(frozen=True, slots=True)
class DLedgerSettings:
    """With the defaults an election takes about two seconds; upstream needs 6 s (heartbeat 2000 ms, fixed timeout of three
    heartbeats). A leader whose process died is replaced sooner. A vote takes four writes of a small file one after the other,
    so the shortest timeout has room for disks that take 300 ms for a write."""

    heartbeat_interval_ms: int = 250
    election_timeout_min_ms: int = 1000
    election_timeout_max_ms: int = 2000
    push_timeout_ms: int = 1000
    """An unanswered PUSH is sent again after this time."""
    push_entries_max: int = 512
    push_bytes_max: int = 1 << 20
    """Limit of the bytes of bodies in one PUSH. A larger entry is sent alone."""
    pushes_in_flight_max: int = 8
    """Limit of PUSHes in flight to a follower whose answers prove that it has caught up. With 1, each PUSH waits for the answer
    to the PUSH before."""
    push_gap_ms: int = 10
    """The wait before a further PUSH that is not full, so that entries that come meanwhile share this PUSH. On a fast network
    the answer comes sooner than this. 0 means no wait."""
    bytes_in_flight_max: int = 4 << 20
    """Limit of the bytes of bodies in these PUSHes. A further PUSH is sent only if a full PUSH fits into the limit."""
    all_bytes_in_flight_max: int = 16 << 20
    """Limit of the bytes of bodies in flight to all followers. Each follower may have one PUSH in any case, so a stuck follower
    delays no other follower."""
    pending_proposals_max: int = 10_000
    pending_bytes_max: int = 64 << 20
    """Limit of the bytes of bodies that wait to be committed, or for this member's disk. A single proposal may have more bytes
    if nothing else waits."""
    entry_bytes_max: int = 4 << 20
    """The largest body of an entry. Upstream's encoder has the same limit of 4 MiB."""
    recent_bytes_max: int = 4 << 20
    """Approximate limit of the bytes of durable entries that stay in memory, for followers that are only a little behind."""
    data_file_bytes: int = 1 << 30
    same_positions: bool = False
    """Whether each entry has the same position in the data files of all members, which must have the same `data_file_bytes`.
    Clients may use the position as the name of the entry. Such a log has no state machine, and its snapshots only contain the
    log's start."""
    index_file_bytes: int = 5 * 1024 * 1024 * INDEX_UNIT_BYTES
    checkpoint_interval_ms: int = 3000
    snapshot_entries: int = 0
    """A snapshot is made once this many entries were applied since the last snapshot. 0 means that no snapshot is made."""
    snapshot_bytes: int = 64 << 20
    """A snapshot is also made once bodies of this many bytes were applied."""
    snapshot_margin_entries: int = 10_000
    """The number of entries before a snapshot's end that stay in the log, for followers that are a little behind."""
    snapshot_chunk_bytes: int = 256 << 10
    """The size of one part when a snapshot is sent."""
    snapshot_bytes_max: int = 256 << 20
    """A larger state is not accepted from a leader, because a received state is in memory until it is complete. So no member
    writes a snapshot of a larger state."""
    checks_addresses: bool = True
    """Whether a member's requests are accepted only from the member's host in the list of members."""
    certificate_role: str = ""
    """The role that the certificates of members must have, if they have roles; "" for any."""

    @property
    def proposal_bytes_max(self) -> int:
        """The limit of a new entry's body. A larger entry could not be sent to any follower, and all later entries would wait
        for ever."""
        return min(self.entry_bytes_max, PUSHED_BYTES_MAX)

    def __post_init__(self) -> None:
        if (
            not 0
            < 2 * self.heartbeat_interval_ms
            <= self.election_timeout_min_ms
            < self.election_timeout_max_ms
        ):
            raise ValueError(
                f"election timeouts {self.election_timeout_min_ms}..{self.election_timeout_max_ms} ms leave no "
                f"room for two heartbeats of {self.heartbeat_interval_ms} ms: raise them or beat more often"
            )
        if self.index_file_bytes % INDEX_UNIT_BYTES or self.index_file_bytes <= 0:
            raise ValueError(
                f"index_file_bytes {self.index_file_bytes} is not a multiple of {INDEX_UNIT_BYTES}"
            )
        if self.entry_bytes_max + 64 > self.data_file_bytes:
            raise ValueError(
                f"an entry of {self.entry_bytes_max} bytes and its header do not fit into a data file of "
                f"{self.data_file_bytes}"
            )
        if not 1 <= self.push_entries_max <= PUSH_ENTRIES_LIMIT or self.push_bytes_max < 1:
            raise ValueError(f"a PUSH must have room for one entry, and for {PUSH_ENTRIES_LIMIT} at most")
        if self.pushes_in_flight_max < 1 or self.push_gap_ms < 0:
            raise ValueError("one PUSH at least must be under way, and no gap between two is negative")
        if self.snapshot_chunk_bytes < 1 or self.snapshot_margin_entries < 0:
            raise ValueError("a chunk of a snapshot has one byte at least, and no margin is negative")
