"""The keys of upstream's Raft mode (DLedgerCommitLog): a broker set that elects its leader itself.

Invariant: the list of members names this broker, and upstream can derive a broker id from the id of each member."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from mqruntime.hostports import check_address
from mqruntime.settings import Settings

MEMBER_ID = re.compile(r"[A-Za-z]\d{1,9}")
MEMBER = re.compile(r"([A-Za-z])(\d+)-([^;\s]+):(\d+)")


@dataclass(frozen=True, slots=True)
class RaftGroup:
    """A Raft group. `peers` maps each member id to the host:port at which the other members call it."""

    name: str
    self_id: str
    peers: dict[str, str]
    preferred: tuple[str, ...]

    @property
    def broker_id(self) -> int:
        """The broker id of this member while it follows; the leader has broker id 0."""
        return broker_id_of(self.self_id)


def why_no_members(ids: Collection[str]) -> str | None:
    """The reason why members of a broker set cannot have these ids; None if they can."""
    for each in ids:
        if not MEMBER_ID.fullmatch(each):
            return (
                f"{each!r} is no id of a broker in Raft mode, which is a letter and up to nine digits, as n3"
            )
    by_number = {broker_id_of(each): each for each in ids}
    for each in ids:
        if (other := by_number[broker_id_of(each)]) != each:
            return f"{each} and {other} would be one broker, {broker_id_of(each)}: give the new one another number"
    return None


def broker_id_of(member_id: str) -> int:
    """The broker id that upstream derives: the number after the letter, plus one."""
    return int(member_id[1:]) + 1


class RaftKeys(Settings):
    """The settings of a broker that have an effect only with `enableDLegerCommitLog=true`."""

    UPSTREAM: ClassVar[dict[str, str]] = {}

    enable_d_leger_commit_log: bool = Field(
        False,
        alias="enableDLegerCommitLog",
        description="Raft mode: the log is that of a group whose members elect the master among them, without controllers, and "
        "a send waits for a majority's disks; upstream deprecates it",
    )
    d_leger_group: str = Field(
        "", alias="dLegerGroup", description="of Raft mode: name of the group; empty: `brokerName`"
    )
    d_leger_peers: str = Field(
        "",
        alias="dLegerPeers",
        description="of Raft mode: all members, `n0-HOST:PORT;n1-HOST:PORT;n2-HOST:PORT`",
    )
    d_leger_self_id: str = Field(
        "", alias="dLegerSelfId", description="of Raft mode: this broker's member id, as `n0`"
    )
    preferred_leader_ids: str = Field(
        "",
        alias="preferredLeaderIds",
        description="of Raft mode: members that lead when they can, as `n0;n1`; another leader transfers leadership to one "
        "that is caught up",
    )
    preferred_leader_id: str = Field(
        "",
        alias="preferredLeaderId",
        description="of Raft mode: the same, by the name in upstream's brokers",
    )
    store_path_d_ledger_commit_log: str = Field(
        "",
        alias="storePathDLedgerCommitLog",
        description="of Raft mode: accepted when it names the folder `dledger-ID/data` below the root",
    )

    @property
    def raft_group(self) -> RaftGroup | None:
        """The Raft group; None if the broker is not in Raft mode."""
        if not self.enable_d_leger_commit_log:
            return None
        preferred = tuple(dict.fromkeys(each for _, each in self._preferred()))
        return RaftGroup(self.d_leger_group, self.d_leger_self_id, self._peers(), preferred)

    def _preferred(self) -> list[tuple[str, str]]:
        """Preferred leaders, each with the key that names it."""
        named = (
            ("preferredLeaderIds", self.preferred_leader_ids),
            ("preferredLeaderId", self.preferred_leader_id),
        )
        return [(key, one.strip()) for key, text in named for one in re.split("[;,]", text) if one.strip()]

    def _peers(self) -> dict[str, str]:
        found = [MEMBER.fullmatch(each.strip()) for each in self.d_leger_peers.split(";") if each.strip()]
        return {f"{each[1]}{each[2]}": f"{each[3]}:{each[4]}" for each in found if each is not None}

    def why_no_group(self) -> str | None:
        """The error in the combination of these keys; None if there is none."""
        group = self.raft_group
        if group is None:
            return None
        listed = [each for each in self.d_leger_peers.split(";") if each.strip()]
        if not listed or len(group.peers) != len(listed):
            return f"dLegerPeers {self.d_leger_peers!r} must list each member once, as n0-HOST:PORT;n1-HOST:PORT;n2-HOST:PORT"
        for address in group.peers.values():
            try:
                check_address(address)
            except ValueError as error:
                return f"dLegerPeers {self.d_leger_peers!r}: {error}"
        if len({broker_id_of(each) for each in group.peers}) != len(listed):
            return f"dLegerPeers {self.d_leger_peers!r} must give each member a number of its own: broker ids come from it"
        for key, each in ("dLegerSelfId", group.self_id), *self._preferred():
            if each not in group.peers:
                return f"{key}: {each!r} is not among the members of dLegerPeers, {' '.join(group.peers)}"
        return None

    def why_no_ledger(self, root: Path) -> str | None:
        """The reason why the ledger's files cannot be at the configured path; None if they can."""
        if self.raft_group is None or not self.store_path_d_ledger_commit_log:
            return None
        place = root / f"dledger-{self.d_leger_self_id}" / "data"
        if Path(self.store_path_d_ledger_commit_log) == place:
            return None
        return (
            f"storePathDLedgerCommitLog must be {place}, or not be set: to have the files elsewhere, move them, and make a "
            "symbolic link from there"
        )
