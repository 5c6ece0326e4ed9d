"""Records of elections, as controllers of this project report them; upstream has no such body."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.wirefields import I32, I64


@dataclass(frozen=True, slots=True)
class Election(Body):
    """One epoch of a broker set. None means unknown to the sender; times are of the sender's wall clock, in ms.

    Without `new_master_id` the old master was removed and no other was elected. The times are those of the old master's
    last heartbeat (`heard_ms`), the detection of its loss (`noticed_ms`), the leading controller's proposal of the election
    (`proposed_ms`), the commit and application of the election (`elected_ms`), the NOTIFY_BROKER_ROLE_CHANGED (1008) sent
    to the new master (`notified_ms`) and the first sign that the new master acts in the epoch (`writable_ms`).
    """

    epoch: I32
    old_master_id: I64 | None = None
    new_master_id: I64 | None = None
    reason: str | None = None
    heard_ms: I64 | None = None
    noticed_ms: I64 | None = None
    proposed_ms: I64 | None = None
    elected_ms: I64 | None = None
    notified_ms: I64 | None = None
    writable_ms: I64 | None = None


@dataclass(frozen=True, slots=True)
class Elections(Body):
    """The last elections of each broker set, oldest first. It is the reply to a CONTROLLER_GET_METADATA_INFO (1005) that
    names broker sets, and the content of a controller's file."""

    elections_table: dict[str, list[Election]] = field(default_factory=dict)
