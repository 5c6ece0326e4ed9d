"""The last elections of each broker set, with the times of those that this controller witnessed.

Invariant: times are kept only for elections that this controller witnessed, that is, whose entry arrived here before it was
committed. For another election the history has the record that an earlier process of this controller saved, or else only the
contents of the log entry. No decision depends on the history. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from controller.events import ElectMaster
from controller.heartbeats import BrokerLoss
from controller.reasons import FIRST_ELECTION, NO_MASTER
from remoting.bodies.elections import Election, Elections

ELECTIONS_MAX = 10


@dataclass(frozen=True, slots=True)
class _Proposed:
    event: ElectMaster
    reason: str | None
    at_ms: int


class ElectionHistory:
    """The history. Times are wall clock ms. `on_change` is called when this controller witnessed something new."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._elections: dict[str, list[Election]] = {}
        self._saved: dict[str, dict[int, Election]] = {}
        self._proposed: dict[str, _Proposed] = {}
        self._awaited: dict[str, int] = {}
        """By broker set, the epoch of the last election while its master was not seen acting yet."""
        self._stale: dict[str, None] = {}
        """Sets whose elections changed since `take_stale` last returned the set."""

    def restore(self, saved: Elections) -> None:
        """Restore the records of an earlier process of this controller. They are used while the log is applied again."""
        for broker_name, elections in saved.elections_table.items():
            self._saved[broker_name] = {election.epoch: election for election in elections}

    def elections_of(self, broker_names: Iterable[str]) -> Elections:
        """The elections of the named sets, without unknown sets."""
        return Elections(
            {name: list(self._elections[name]) for name in broker_names if name in self._elections}
        )

    def take_stale(self) -> list[str]:
        """The sets whose elections changed or were dropped since the last call."""
        stale, self._stale = list(self._stale), {}
        return stale

    def proposing(self, event: ElectMaster, reason: str | None, now_ms: int) -> None:
        """Record that this controller leads and proposes `event` now."""
        self._proposed[event.broker_name] = _Proposed(event, reason, now_ms)

    def deposed(self) -> None:
        """Forget this controller's own proposals, because it no longer leads. Its proposals may never be committed, and events
        of the next leader may look the same."""
        self._proposed.clear()

    def elected(
        self, event: ElectMaster, epoch: int, loss: BrokerLoss | None, witnessed_ms: int | None
    ) -> None:
        """Record that `event` was applied and began `epoch`. `witnessed_ms` is the time now, or None if `event` was committed
        before it arrived here. `loss` describes the loss of the old master, if this controller considers the old master
        dead."""
        former = self._elections.setdefault(event.broker_name, [])
        old_master_id = former[-1].new_master_id if former else None
        reason = _reason_by_itself(epoch, old_master_id)
        election = Election(epoch, old_master_id, event.master_id, reason)
        if witnessed_ms is None:
            saved = self._saved.get(event.broker_name, {}).get(epoch)
            same = saved is not None and saved.new_master_id == event.master_id
            election = saved if saved is not None and same else election
        else:
            election = self._witnessed(event, election, loss, witnessed_ms)
        former.append(election)
        del former[:-ELECTIONS_MAX]
        self._stale[event.broker_name] = None
        self._awaited.pop(event.broker_name, None)
        if witnessed_ms is not None:
            if event.master_id is not None:
                self._awaited[event.broker_name] = epoch
            self._on_change()

    def resumed(self, broker_name: str, epoch: int, master_id: int | None) -> None:
        """Rebuild the elections after a snapshot was loaded, in which the last election elected `master_id` in `epoch`. The
        history then has all elections up to `epoch` that this process or an earlier process witnessed."""
        known = self._saved.get(broker_name, {}) | {
            election.epoch: election for election in self._elections.get(broker_name, ())
        }
        earlier = [election for at, election in sorted(known.items()) if at < epoch]
        last = known.get(epoch)
        if last is None or last.new_master_id != master_id:
            last = Election(epoch, earlier[-1].new_master_id if earlier else None, master_id, None)
        self._elections[broker_name] = [*earlier, last][-ELECTIONS_MAX:]
        self._stale[broker_name] = None
        self._awaited.pop(broker_name, None)

    def notified(self, broker_name: str, epoch: int, now_ms: int) -> None:
        """Record that the master of `epoch` was notified. Only the first notification counts."""
        last = self._awaited_election(broker_name, epoch)
        if last is not None and last.notified_ms is None:
            self._elections[broker_name][-1] = replace(last, notified_ms=now_ms)
            self._stale[broker_name] = None
            self._on_change()

    def acts(self, broker_name: str, broker_id: int | None, epoch: int, now_ms: int) -> None:
        """Record that a broker acts as master in `epoch`."""
        last = self._awaited_election(broker_name, epoch)
        if last is not None and last.new_master_id == broker_id:
            self._elections[broker_name][-1] = replace(last, writable_ms=now_ms)
            del self._awaited[broker_name]
            self._stale[broker_name] = None
            self._on_change()

    def forget(self, broker_name: str, *, witnessed: bool) -> None:
        """Drop the elections of a set that is gone. While the log is applied again (not `witnessed`), saved records stay,
        because they may be of a later set with the same name."""
        gone = self._elections.pop(broker_name, None)
        self._stale[broker_name] = None
        self._awaited.pop(broker_name, None)
        if witnessed:
            self._saved.pop(broker_name, None)
        if witnessed and gone is not None:
            self._on_change()

    def _witnessed(
        self, event: ElectMaster, election: Election, loss: BrokerLoss | None, now_ms: int
    ) -> Election:
        proposed = self._proposed.pop(event.broker_name, None)
        mine = proposed if proposed is not None and proposed.event == event else None
        election = replace(election, elected_ms=now_ms)
        if loss is not None:
            election = replace(
                election,
                reason=loss.why,
                heard_ms=_ago(now_ms, loss.heard_ago_ms),
                noticed_ms=_ago(now_ms, loss.noticed_ago_ms),
            )
        if mine is None:
            return election
        noticed_ms = election.noticed_ms
        if loss is not None and noticed_ms is None:
            noticed_ms = mine.at_ms  # the leader notices silence when it proposes
        return replace(
            election,
            reason=mine.reason or election.reason,
            noticed_ms=noticed_ms,
            proposed_ms=mine.at_ms,
        )

    def _awaited_election(self, broker_name: str, epoch: int) -> Election | None:
        """The last election of a set, if it began `epoch` and its master was not seen acting yet."""
        return self._elections[broker_name][-1] if self._awaited.get(broker_name) == epoch else None


def _reason_by_itself(epoch: int, old_master_id: int | None) -> str | None:
    """The reason of an election, as far as it follows from the log."""
    if epoch == 1:
        return FIRST_ELECTION
    return NO_MASTER if old_master_id is None else None


def _ago(now_ms: int, ago_ms: int | None) -> int | None:
    return None if ago_ms is None else now_ms - ago_ms
