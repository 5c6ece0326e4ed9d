"""Records of elections, as controllers of this project report them; upstream has no such body."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.wirefields import I32, I64


@dataclass(frozen=True, slots=True)
class Election(Body):
    """One epoch of a broker set; None is unknown to the sender, times are its own wall clock in ms.

    Without `new_master_id` the old master was removed and no other elected. `heard_ms` is the old master's last heartbeat,
    `noticed_ms` when its loss was noticed, `proposed_ms` when the leading controller proposed the election, `elected_ms` when
    it was committed and applied, `notified_ms` when the new master had been sent 1008, `writable_ms` when it was first seen
    acting in the epoch.
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
    """The last elections by broker set, oldest first: reply to a 1005 that names broker sets, and a controller's file of
    them."""

    elections_table: dict[str, list[Election]] = field(default_factory=dict)
