"""Judges the decisions and answers of controllers by the requests and messages that had reached them.

The check sees requests and answers where scripted brokers and operators send and get them, heartbeats and ended connections
where they reach a controller, proposals when they are made, and the bytes of entries when they are applied. It computes the
expected state with `setmodel` and `rules`, never with the code under test.

The applied entries, in their order, are the one history with which all controllers must agree. A set is linearizable if two
things hold. Every event is explained by a request that was open when the event was applied, and that fits the set as it was
then. Every answer is explained by the set at some moment between request and answer. Requests without a definite answer stay
open. A rejected request must never take effect, except that its rejection may increment the set's epoch.

R5 one history, and each controller's state is the one that the entries make · R8 a change that is answered as done is done ·
R10 a read returns the state of a moment after it began · M1 one master an epoch, epochs that grow · M4 only an electable
broker is elected · M5 and it holds acknowledged data · H1 no master is deposed whose heartbeats arrive, unless an operator
requests it, or the master reports that it was restarted or cannot lead · S1 an alter takes effect by a request of the master,
with both epochs, once · S2 the set holds its master and registered brokers · S3 the master waits for every set that takes
effect · B1 an id has one owner · B2 no live broker is forgotten without an explicit request.

Invariant: the first violation is kept; `raise_found` raises it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from simulation.controllers import entries
from simulation.controllers.asks import FENCED, OPERATOR, UNDECIDED, Ask, Asks, Code, Effect
from simulation.controllers.entries import ControllerEntry
from simulation.controllers.rules import (
    LivenessView,
    better_than,
    eligible_after_alter,
    eligible_after_election,
    may_be_elected,
    may_be_forgotten,
    may_be_the_set,
    yields_to,
)
from simulation.controllers.setmodel import SetModel, SetState
from simulation.kernel.violation import Violation, expect

Union = Callable[[str, int, int], frozenset[int] | None]
"""(set, master, epoch) -> the brokers for which this master waits, if it acts."""


@dataclass(frozen=True, slots=True)
class Applied:
    """An entry that some controller applied, and the state of its set afterwards."""

    index: int
    body: bytes
    broker_name: str
    state: SetState


@dataclass
class ControllerCheck:
    """`unclean` says whether unclean election is on. `union_of` returns the brokers for which an acting master waits.
    `on_sent` is called with each request before it is sent. `learners` are the addresses of learners."""

    unclean: bool = False
    union_of: Union = lambda _name, _master, _epoch: None
    sets: dict[str, SetModel] = field(default_factory=dict)
    learners: frozenset[str] = frozenset()
    order: list[Applied] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    violation: BaseException | None = None
    on_sent: Callable[[Ask], None] = lambda _ask: None
    on_found: Callable[[], None] = lambda: None
    """Called once, with the first violation."""

    def __post_init__(self) -> None:
        self.asks = Asks()
        self.once_held: Counter[tuple[str, int]] = Counter()
        """The longest log that a broker, by set and id, reported to any controller."""
        self.echoed: set[tuple[str, int]] = set()
        """Brokers without incarnations whose heartbeats were repeated over a later connection, as if the next process had sent
        them. No controller can see the difference."""
        self._began: dict[tuple[str, int, str], int] = {}
        """For each process that sent its incarnation in a registration: how many entries there were when it sent the first."""
        self._proposed: dict[tuple[int, int], LivenessView] = {}
        self._applied: Counter[str] = Counter()
        self._answers: dict[int, Callable[[Ask, RemotingCommand], None]] = {
            Code.CONTROLLER_ALTER_SYNC_STATE_SET: self._altered,
            Code.CONTROLLER_ELECT_MASTER: self._elected,
            Code.CONTROLLER_REGISTER_BROKER: self._registered,
            Code.CONTROLLER_APPLY_BROKER_ID: self._granted,
            Code.CLEAN_BROKER_DATA: self._cleaned,
            Code.CONTROLLER_GET_REPLICA_INFO: self._info_read,
            Code.CONTROLLER_GET_SYNC_STATE_DATA: self._data_read,
            Code.CONTROLLER_GET_NEXT_BROKER_ID: self._free_id_read,
        }

    def state(self, broker_name: str) -> SetState:
        """The newest state that any controller applied."""
        return self._model(broker_name).now

    def masters(self, broker_name: str) -> dict[int, int | None]:
        """Epoch -> the elected broker."""
        return {epoch: elected for epoch, (_, elected) in self._model(broker_name).elections.items()}

    @property
    def elections(self) -> int:
        return self.counts["elections"]

    def raise_found(self) -> None:
        """Raise the first violation, if there was one."""
        if self.violation is not None:
            raise self.violation

    def guarded(self, judge: Callable[[], None]) -> None:
        """Keep a violation, so that it is not taken for a failure of the process in which it was found."""
        try:
            judge()
        except Exception as error:  # noqa: BLE001 - kept, and raised by raise_found
            if self.violation is None:
                self.violation = error
                self.on_found()

    def learners_of(self, state: SetState) -> frozenset[int]:
        return frozenset(id_ for id_, address in state.addresses.items() if address in self.learners)

    def _model(self, broker_name: str) -> SetModel:
        return self.sets.setdefault(broker_name, SetModel())

    # What controllers do

    def proposing(self, index: int, term: int, liveness: LivenessView) -> None:
        """The leader of `term` is about to append an entry at this index."""
        self._proposed[index, term] = liveness

    def applied(self, process: str, index: int, term: int, body: bytes, kept: SetState | None) -> None:
        """`process` applied an entry, and now has the entry's set as `kept`. None means that it does not know the set."""
        place = self._applied[process]
        if place == len(self.order):
            entry = entries.read(body)
            expect("R5", entry is not None, f"expected an event at {index}, seen {body!r}")
            assert entry is not None
            self._take(entry, index, body, self._proposed.get((index, term)))
        one = self.order[place]
        what = f"{process} applied {body!r} at {index}, expected {one.body!r} at {one.index}"
        expect("R5", (one.index, one.body) == (index, body), what)
        wanted = one.state if one.state.known else None
        expect("R5", kept == wanted, f"{process} has {kept} after {body!r}, expected {wanted}")
        self._applied[process] += 1

    def loaded(self, process: str, index: int, kept: dict[str, SetState | None]) -> None:
        """`process` replaced all entries up to `index` by a snapshot, and now has these sets."""
        place = bisect_right(self.order, index, key=lambda one: one.index)
        last = {one.broker_name: one.state for one in self.order[:place]}
        wanted = {name: state for name, state in last.items() if state.known}
        expect("R5", kept == wanted, f"{process} loads {kept} at {index}, expected {wanted}")
        self._applied[process] = place
        self.counts["snapshots loaded"] += 1

    def _take(self, entry: ControllerEntry, index: int, body: bytes, liveness: LivenessView | None) -> None:
        model = self._model(entry.broker_name)
        expect("R8", liveness is not None, f"no controller proposed {body!r} at {index}")
        assert liveness is not None
        was, now = model.now, model.after(entry)
        match entry.kind:
            case entries.ALTER:
                self._judge_alter(entry, was, now, liveness)
            case entries.ELECT:
                self._judge_election(entry, was, liveness)
            case entries.APPLY_ID:
                self._judge_grant(entry, was)
            case entries.CLEAN:
                self._judge_clean(entry, was, liveness)
            case entries.ADDRESS:
                self._explained(
                    entry, "B1", f"{entry} moved", Code.CONTROLLER_REGISTER_BROKER, lambda ask: (
                        ask.number("brokerId") == entry.broker_id
                        and ask.ext["brokerAddress"] == entry.address
                    )
                )  # fmt: skip
        if now is not was:
            model.become(now, len(self.order))
        self.order.append(Applied(index, body, entry.broker_name, now))
        self.counts["events"] += 1

    def _explained(
        self, entry: ControllerEntry, rule: str, what: str, code: RequestCode, fits: Callable[[Ask], bool]
    ) -> None:
        """Check that an open request that fits has caused the event."""
        explaining = [ask for ask in self.asks.open(entry.broker_name, code) if fits(ask)]
        others = list(self.asks.open(entry.broker_name, code))
        expect(rule, bool(explaining), f"{what}, expected a request that allows it; open: {others}")
        self._brought_about(Effect(what, 0, explaining))

    def _brought_about(self, effect: Effect) -> None:
        for ask in [*effect.may_be_of, *(ask for ask in effect.fences if ask not in effect.may_be_of)]:
            ask.explains.append(effect)

    def _judge_alter(
        self, entry: ControllerEntry, was: SetState, now: SetState, liveness: LivenessView
    ) -> None:
        members = entry.ids or frozenset()
        what = f"{sorted(was.members)} became {sorted(members)} in {was.master_epoch}/{was.set_epoch}"
        what += f" with {sorted(entry.eligible)} also eligible" if entry.eligible else ""
        asks = list(self.asks.open(entry.broker_name, Code.CONTROLLER_ALTER_SYNC_STATE_SET))
        fitting = [
            ask
            for ask in asks
            if ask.number("masterBrokerId") == was.master_id
            and (ask.number("masterEpoch"), ask.set_epoch) == (was.master_epoch, was.set_epoch)
        ]
        done = [
            ask
            for ask in fitting
            if ask.members == members <= liveness.alive
            and entry.eligible == eligible_after_alter(was, members, ask.members_min)
        ]
        if cleaning := self._asks_that_forget(entry, was):
            self._brought_about(Effect(what, now.set_epoch, [*done, *cleaning]))
            return
        fences = [ask for ask in fitting if not ask.members <= liveness.surely_alive]
        if (members, entry.eligible) != (was.members, was.eligible):
            fences = []
        if not fences:
            why_not = may_be_the_set(was, members, self.learners_of(was))
            expect("S2", why_not is None, f"{what}: {why_not}")
            expect(
                "S2", members <= liveness.alive, f"{what}: alive for {liveness.by}: {sorted(liveness.alive)}"
            )
            expect("S1", bool(done), f"{what}, expected a request of the master; open: {asks}")
        self._brought_about(Effect(what, now.set_epoch, done, fences=fences))
        assert was.master_id is not None
        union = self.union_of(entry.broker_name, was.master_id, was.master_epoch)
        if union is not None:
            expect("S3", members <= union, f"{what}, but the master waits for {sorted(union)} only")
        self.counts["fences" if fences else "alters"] += 1

    def _asks_that_forget(self, entry: ControllerEntry, was: SetState) -> list[Ask]:
        """Requests that may have removed members because the next event forgets these brokers."""
        left = was.members - (entry.ids or frozenset())
        return [
            ask
            for ask in self.asks.open(entry.broker_name, Code.CLEAN_BROKER_DATA)
            if left
            and (ask.ids_to_clean & was.members, was.eligible - ask.ids_to_clean) == (left, entry.eligible)
        ]

    def _judge_election(self, entry: ControllerEntry, was: SetState, liveness: LivenessView) -> None:
        new, old = entry.broker_id, was.master_id
        what = f"{entry.broker_name}: {new} follows {old} of epoch {was.master_epoch}"
        expect("M1", was.known, f"{what} in an unknown set")
        if new is not None:
            self._judge_elected(entry, what, new, was, liveness)
            expect("M1", new != old, f"{what}: a new epoch for the same master")
        else:
            expect("M1", old is not None, f"{what}: a new epoch without a master, and there was none")
        if old is not None and old not in liveness.gone:
            self._judge_deposing(entry, what, old, new, liveness)
        self.counts["elections"] += 1

    def _judge_elected(
        self, entry: ControllerEntry, what: str, new: int, was: SetState, liveness: LivenessView
    ) -> None:
        why_not = may_be_elected(was, new, self.learners_of(was), liveness, unclean=self.unclean)
        expect("M4", why_not is None, f"{what}: {why_not}")
        expect(
            "M4",
            new in liveness.alive,
            f"{what}, which is not alive for {liveness.by}: {sorted(liveness.alive)}",
        )
        eligible = eligible_after_election(was, new, liveness)
        said = f"expected eligible {sorted(eligible)}, seen {sorted(entry.eligible)}"
        expect("M4", entry.eligible == eligible, f"{what}: {said}")
        if was.master_epoch == 0:
            return
        model = self._model(entry.broker_name)
        if new in was.members | was.eligible:
            expect(
                "M5",
                new in model.holders,
                f"{what}, expected one of {sorted(model.holders)}, which hold everything",
            )
            self.counts["elected beside the set"] += new not in was.members
        else:
            model.holders = frozenset({new})  # unclean election: its log counts now
        asks = self.asks.open(entry.broker_name, Code.CONTROLLER_ELECT_MASTER)
        designated = any(ask.says("designateElect") and ask.number("brokerId") == new for ask in asks)
        if designated and self.unclean:
            return
        better = better_than(was, new, liveness, designated=designated)
        expect("M4", better is None, f"{what}: {better}")
        if designated:
            return
        if liveness.of(new).may_miss and not self.unclean:
            missing = (was.members | was.eligible) - liveness.alive
            expect("M4", not missing, f"{what}, which may be missing data that {sorted(missing)} may have")
            self.counts["elected though it may lack"] += 1

    def _judge_deposing(
        self, entry: ControllerEntry, what: str, old: int, new: int | None, liveness: LivenessView
    ) -> None:
        """Judge the deposing of a master that is alive for the controller, or has not led long enough to count as dead."""
        if new is not None and yields_to(liveness.of(old), liveness.of(new)):
            self.counts["yielded"] += 1
            return
        if new is None:
            late = old not in liveness.restarted
            expect("H1", not late, f"{what}, which is alive and was not restarted since")
            self._explained(
                entry, "H1", f"{what}, which is alive", Code.CONTROLLER_REGISTER_BROKER,
                lambda ask: ask.number("brokerId") == old,
            )  # fmt: skip
        else:
            self._explained(
                entry, "H1", f"{what}, which is alive", Code.CONTROLLER_ELECT_MASTER,
                lambda ask: ask.says("designateElect") and ask.number("brokerId") == new,
            )  # fmt: skip

    def _judge_grant(self, entry: ControllerEntry, was: SetState) -> None:
        assert entry.broker_id is not None
        what = f"id {entry.broker_id} of {entry.broker_name} is granted to {entry.check_code}"
        owner = was.codes.get(entry.broker_id, entry.check_code)
        expect("B1", owner == entry.check_code, f"{what}, expected its owner {owner}")
        expect("B1", entry.check_code not in was.codes.values(), f"{what}, which has an id")
        self._explained(
            entry, "B1", what, Code.CONTROLLER_APPLY_BROKER_ID, lambda ask: (
                ask.number("appliedBrokerId") == entry.broker_id
                and ask.ext["registerCheckCode"] == entry.check_code
            )
        )  # fmt: skip

    def _judge_clean(self, entry: ControllerEntry, was: SetState, liveness: LivenessView) -> None:
        what = f"{sorted(entry.ids) if entry.ids else 'all'} of {entry.broker_name} are forgotten"
        gone = entry.ids if entry.ids is not None else frozenset(was.codes)
        if entry.ids is not None and not entry.ids >= was.codes.keys():
            expect("S2", was.master_id not in gone, f"{what}, among them the master")
            expect("S2", bool(was.members - gone), f"{what}, and no member is left")
            why = may_be_forgotten(was, gone, liveness)
            expect("M5", why is None, f"{what}: {why}")
        living = gone & liveness.alive
        self._explained(
            entry, "B2", f"{what}, of which {sorted(living)} live", Code.CLEAN_BROKER_DATA, lambda ask: (
                (not living or ask.says("isCleanLivingBroker"))
                and (not ask.ids_to_clean or gone <= ask.ids_to_clean)
            )
        )  # fmt: skip

    # Requests of brokers and operators, and their answers

    def sent(self, who: str, request: RemotingCommand) -> Ask:
        """`who` is about to send the request."""
        self.counts["asks"] += 1
        ask = self.asks.sent(who, request, len(self.order))
        if ask.code == Code.CONTROLLER_REGISTER_BROKER:
            self._began.setdefault(_process(ask), len(self.order))
        self.on_sent(ask)
        return ask

    def not_sent(self, ask: Ask) -> None:
        """The request was never sent."""
        self.guarded(lambda: self._refused(ask))

    def answered(self, ask: Ask, reply: RemotingCommand) -> None:
        """The sender of the request got the answer."""
        self.guarded(lambda: self._answered(ask, reply))

    def _answered(self, ask: Ask, reply: RemotingCommand) -> None:
        if reply.code in UNDECIDED:
            self.counts["undecided"] += 1
        elif reply.code == ResponseCode.SUCCESS:
            judge = self._answers.get(ask.code)
            if judge is not None:
                judge(ask, reply)
            self.asks.close(ask)
        else:
            if reply.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
                self._expect_a_moment(ask, reply, members=None)
            if reply.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                unknown = any(not state.known or _is_a_stranger(state, ask) for state in self._moments(ask))
                expect("R10", unknown, f"{ask} was answered that its set does not exist")
            if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED and "brokerId" in ask.ext:
                unknown = any(not _knows(state, ask) for state in self._moments(ask))
                expect("R10", unknown, f"{ask} was answered that it is not registered")
            self._refused(ask, reply)

    def _refused(self, ask: Ask, reply: RemotingCommand | None = None) -> None:
        self.asks.close(ask)
        may_fence = reply is not None and reply.code in FENCED
        answer = _json(reply) if reply is not None and may_fence else None
        for effect in ask.explains:
            is_fence = may_fence and (answer is None or effect.set_epoch == answer["syncStateSetEpoch"])
            alone = effect.cannot_be_of(ask, fenced=is_fence)
            expect("R8", not alone, f"{effect.what}, only explained by {ask}, which was rejected")
        if answer is not None:
            self._fenced(ask, frozenset(answer["syncStateSet"]), answer["syncStateSetEpoch"])

    def _fenced(self, ask: Ask, members: frozenset[int], set_epoch: int) -> None:
        """The rejection of the ask returned the set with its new epoch."""
        mine = [
            effect
            for effect in ask.explains
            if ask in effect.fences and effect.owner is None and effect.set_epoch == set_epoch
        ]
        expect("R8", bool(mine), f"{ask} was answered set epoch {set_epoch}, it explains {ask.explains}")
        mine[0].owner = ask
        moments = self._moments(ask)
        stood = any((state.members, state.set_epoch) == (members, set_epoch) for state in moments)
        expect("R8", stood, f"{ask} was answered {members} in {set_epoch}, expected one of {moments}")

    def _moments(self, ask: Ask, broker_name: str | None = None) -> list[SetState]:
        return list(self._model(broker_name or ask.broker_name).between(ask.sent_at, len(self.order)))

    def _altered(self, ask: Ask, reply: RemotingCommand) -> None:
        answered = int(reply.ext["newSyncStateSetEpoch"])
        mine = [
            effect
            for effect in ask.explains
            if ask in effect.may_be_of and effect.owner is None and effect.set_epoch == answered
        ]
        expect("R8", bool(mine), f"{ask} was answered set epoch {answered}, it explains {ask.explains}")
        mine[0].owner = ask
        mine[0].may_be_of, mine[0].fences = [ask], []
        self._expect_set(ask, reply, ask.members, answered)

    def _expect_set(self, ask: Ask, reply: RemotingCommand, members: frozenset[int], set_epoch: int) -> None:
        body = _json(reply)
        answered = frozenset(body["syncStateSet"]), body["syncStateSetEpoch"]
        expect(
            "R8",
            answered == (members, set_epoch),
            f"{ask} was answered {answered}, expected {members} in {set_epoch}",
        )

    def _elected(self, ask: Ask, reply: RemotingCommand) -> None:
        master, epoch = int(reply.ext["masterBrokerId"]), int(reply.ext["masterEpoch"])
        place, elected = self._model(ask.broker_name).elections.get(epoch, (-1, None))
        held = elected == master and place >= ask.sent_at
        expect("R8", held, f"{ask} was answered master {master} of {epoch}, elected was {elected} at {place}")
        wanted = ask.number("brokerId")
        expect(
            "M4", not ask.says("designateElect") or master == wanted, f"{ask} got {master}, expected {wanted}"
        )

    def _expect_a_moment(self, ask: Ask, reply: RemotingCommand, members: frozenset[int] | None) -> None:
        """Check that master and epochs in the header, and `members`, are those of one moment."""
        answered = reply.ext.get("masterBrokerId"), reply.ext.get("masterEpoch")
        set_epoch = reply.ext.get("syncStateSetEpoch")
        moments = self._moments(ask)
        for state in moments:
            master = None if state.master_id is None else str(state.master_id)
            if (
                answered == (master, str(state.master_epoch))
                and (set_epoch is None or int(set_epoch) == state.set_epoch)
                and (members is None or members == state.members)
            ):
                return
        raise Violation(
            "R10", f"{ask} was answered {answered}, {set_epoch}, {members}, expected one of {moments}"
        )

    def _registered(self, ask: Ask, reply: RemotingCommand) -> None:
        broker_id, moments = ask.number("brokerId"), self._moments(ask)
        known = any(broker_id in state.codes for state in moments)
        expect("B1", known, f"{ask} was registered, and the id has no owner")
        elections, began = self._model(ask.broker_name).elections, ask.sent_at
        if "incarnation" in ask.ext:
            began = self._began[_process(ask)]
        led_on = all(
            state.master_id == broker_id and elections.get(state.master_epoch, (-1, None))[0] < began
            for state in moments
        )
        if ask.who != OPERATOR and (ask.broker_name, broker_id) not in self.echoed:  # late delivery
            expect("M2", not led_on, f"{ask} is a restarted master, and still leads its old epoch")
        if "masterBrokerId" in reply.ext:
            self._expect_a_moment(ask, reply, frozenset(_json(reply)["syncStateSet"]))

    def _granted(self, ask: Ask, reply: RemotingCommand) -> None:
        broker_id, code = ask.number("appliedBrokerId"), ask.ext["registerCheckCode"]
        granted = any(state.codes.get(broker_id) == code for state in self._moments(ask))
        expect("B1", granted, f"{ask} was granted an id that is not its own in {self._moments(ask)}")

    def _cleaned(self, ask: Ask, reply: RemotingCommand) -> None:
        ids = ask.ids_to_clean
        gone = any(not ids & state.codes.keys() for state in self._moments(ask))
        expect("R8", gone, f"{ask} was answered as done, and {sorted(ids)} are still registered")

    def _info_read(self, ask: Ask, reply: RemotingCommand) -> None:
        body = _json(reply)
        members, set_epoch = frozenset(body["syncStateSet"]), body["syncStateSetEpoch"]
        reply.ext = dict(reply.ext, syncStateSetEpoch=str(set_epoch))
        self._expect_a_moment(ask, reply, members)
        if "brokerId" in ask.ext:
            known = any(_knows(state, ask) for state in self._moments(ask))
            expect("R10", known, f"{ask} was answered as registered, and it is not")
        self.counts["reads"] += 1

    def _data_read(self, ask: Ask, reply: RemotingCommand) -> None:
        for broker_name, row_of_set in _json(reply)["replicasInfoTable"].items():
            members = frozenset(row["brokerId"] for row in row_of_set["inSyncReplicas"])
            said = (
                row_of_set.get("masterBrokerId"),
                row_of_set["masterEpoch"],
                row_of_set["syncStateSetEpoch"],
                members,
            )
            moments = self._moments(ask, broker_name)
            stood = any(
                said == (state.master_id, state.master_epoch, state.set_epoch, state.members)
                for state in moments
            )
            expect("R10", stood, f"{ask} was answered {said} of {broker_name}, expected one of {moments}")
        self.counts["reads"] += 1

    def _free_id_read(self, ask: Ask, reply: RemotingCommand) -> None:
        answered = int(reply.ext["nextBrokerId"])
        free = any(answered not in state.codes for state in self._moments(ask))
        expect("B1", free, f"{ask} was answered that {answered} is free, and it has an owner")

    def acknowledged(self, broker_name: str, holders: frozenset[int]) -> None:
        """A master acknowledged data that only these brokers certainly hold."""
        self._model(broker_name).holders = holders
        self.counts["acknowledged"] += 1

    def waits_for(self, broker_name: str, master: int, epoch: int, union: frozenset[int]) -> None:
        """That master acts, and waits for these brokers from now on."""

        def judge() -> None:
            state = self.state(broker_name)
            if (state.master_id, state.master_epoch) == (master, epoch):
                left = state.members - union
                expect(
                    "S3", not left, f"{master} of {broker_name} does not wait for {sorted(left)} of its set"
                )

        self.guarded(judge)

    def announced(self, broker_name: str, master: int | None, epoch: int) -> None:
        """A controller notified a broker of its master."""

        def judge() -> None:
            _, elected = self._model(broker_name).elections.get(epoch, (-1, None))
            expect(
                "M1",
                elected == master,
                f"{broker_name} was notified of {master} in {epoch}, expected {elected}",
            )

        self.guarded(judge)


def _json(reply: RemotingCommand) -> Any:
    return json.loads(bytes(reply.body or b"null"))


def _process(ask: Ask) -> tuple[str, int, str]:
    """The process of the broker that requests registration."""
    return ask.broker_name, ask.number("brokerId"), ask.ext.get("incarnation", "")


def _is_a_stranger(state: SetState, ask: Ask) -> bool:
    """Whether the sender is a stranger: it sends a code that the set has not forgotten, and an id that does not belong to that
    code."""
    code = ask.ext.get("registerCheckCode")
    if code is None or "brokerId" not in ask.ext or code in state.forgotten:
        return False
    return state.codes.get(ask.number("brokerId")) != code


def _knows(state: SetState, ask: Ask) -> bool:
    """Whether the sender owns its id in this state, judged by its check code if it sends one."""
    code = state.codes.get(ask.number("brokerId"))
    return code is not None and ask.ext.get("registerCheckCode", code) == code
