"""Takes one look at broker sets: asks controllers, brokers and, if one is known, a name server. In Raft mode there are no
controllers. The brokers that the name server knows then report the leader.

Invariant: all servers are asked at once. If a server does not answer, only its own row is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs, messages, raftsets
from mqadmin.calls.elections import metadata_and_elections
from mqadmin.calls.raftsets import ENTRY_HEADER_BYTES
from mqadmin.errors import AdminError, NoLeader, ServerUnreachable
from mqadmin.replies import BrokerEpochs, BrokerSet, SyncStateInfo
from mqadmin.watch.timelines import ELECTIONS_MAX, fullest, joined
from mqadmin.watch.view import ControllerView, MemberView, SetView, View, WatchedElection, master_of
from remoting.bodies.elections import Election, Elections

ANSWER_MS_MAX = 1000
NO_LEADER = "no controller leads: a majority of them must run"
NO_ANSWER = "no controller answers: do they run, are the addresses right?"
ROLES = {0: "master", -1: "none"}


class Gatherer:
    """Looks at the named broker sets. Without a leading controller it uses the addresses of a name server. `controllers` is
    empty in Raft mode."""

    def __init__(
        self, client: AdminClient, controllers: str, broker_names: list[str], namesrv: str | None
    ) -> None:
        self._client = client
        self._controllers = split_addresses(controllers) if controllers else []
        self._broker_names = broker_names
        self._namesrv = namesrv
        self._reported: dict[str, dict[int, Election]] = {}
        self._firsts: dict[tuple[str, int, int], tuple[int, str]] = {}
        client.answer_ms_max = ANSWER_MS_MAX

    async def look(self) -> View:
        """One look, without what a `Story` adds."""
        answers, registered = await asyncio.gather(
            asyncio.gather(*(self._controller(address) for address in self._controllers)), self._registered()
        )
        controllers = tuple(row for row, _ in answers)
        tables = [elections.elections_table for _, elections in answers]
        trouble: str | None = None
        states: dict[str, SyncStateInfo] = {}
        leader = leader_of(controllers)
        if not self._controllers:
            states = await self._elected_by_themselves(registered)
        elif leader is None:
            answer = any(row.trouble is None for row in controllers)
            trouble = NO_LEADER if answer else NO_ANSWER
        else:
            try:
                states = await self._client.sync_states(leader, self._broker_names)
            except (NoLeader, ServerUnreachable):
                trouble = f"the leader {leader} does not answer: the other controllers elect one"
            except AdminError as error:
                trouble = str(error)
        sets = await asyncio.gather(
            *(self._set(name, states.get(name), registered.get(name)) for name in self._broker_names)
        )
        reported_sets = [
            self._with_reported(row, [table.get(row.broker_name, []) for table in tables]) for row in sets
        ]
        return View(self._client.clock.now_ms(), controllers, tuple(map(_dated, reported_sets)), trouble)

    async def _elected_by_themselves(self, registered: dict[str, BrokerSet]) -> dict[str, SyncStateInfo]:
        found: dict[str, SyncStateInfo] = {}
        for name in self._broker_names:
            addresses = registered[name].addresses if name in registered else {}
            members = {address: role_id or None for role_id, address in addresses.items()}
            state = await raftsets.state_of(self._client, name, members)
            if state is not None:
                found[name] = state
        return found

    def _with_reported(self, row: SetView, stories: list[list[Election]]) -> SetView:
        """The set with its elections, as reported now or in an earlier look."""
        remembered = self._reported.get(row.broker_name, {}).values()
        reported = fullest([*stories, remembered])
        if row.master_epoch is not None:  # higher epochs belong to an earlier set of that name
            reported = {epoch: one for epoch, one in reported.items() if epoch <= row.master_epoch}
        self._reported[row.broker_name] = dict(sorted(reported.items())[-ELECTIONS_MAX:])
        return replace(row, elections=joined(row.elections, reported))

    async def _controller(self, address: str) -> tuple[ControllerView, Elections]:
        try:
            metadata, elections = await metadata_and_elections(self._client, address, self._broker_names)
        except AdminError as error:
            return ControllerView(address, trouble=str(error)), Elections()
        return ControllerView(
            address, metadata.is_leader, metadata.leader_id, metadata.leader_address
        ), elections

    async def _registered(self) -> dict[str, BrokerSet]:
        if not self._namesrv:
            return {}
        try:
            return (await self._client.cluster_info(self._namesrv)).broker_sets
        except AdminError:
            return {}  # what the controllers answered is enough

    async def _set(self, name: str, state: SyncStateInfo | None, registered: BrokerSet | None) -> SetView:
        if state is not None:
            rows = [
                MemberView(replica.address, replica.broker_id, replica.alive, inside)
                for members, inside in ((state.in_sync, True), (state.not_in_sync, False))
                for replica in members
            ]
            rows.sort(key=lambda row: row.broker_id or 0)
        else:
            rows = [MemberView(address) for address in (registered.addresses.values() if registered else ())]
        answers = await asyncio.gather(*(self._broker(row) for row in rows))
        brokers = [row for row, _ in answers]
        histories = {row.address: epochs for row, epochs in answers if epochs is not None}
        cluster = registered.cluster if registered else None
        if cluster is None:
            cluster = next((epochs.cluster_name for epochs in histories.values()), None)
        master_address = state.master_address if state else None
        master = master_of(brokers, state.master_id if state else None, master_address)
        if master is not None and master.max_offset is not None:
            brokers = list(await asyncio.gather(*(self._lag(row, master) for row in brokers)))
        return SetView(
            broker_name=name,
            cluster=cluster,
            master_id=state.master_id if state else None,
            master_address=master_address,
            master_epoch=state.master_epoch if state else None,
            sync_state_set_epoch=state.sync_state_set_epoch if state else None,
            brokers=tuple(brokers),
            elections=await self._elections(name, master_address, histories),
            elects_itself=not self._controllers,
        )

    async def _broker(self, row: MemberView) -> tuple[MemberView, BrokerEpochs | None]:
        try:
            info, epochs = await asyncio.gather(
                self._client.runtime_info(row.address), self._client.broker_epochs(row.address)
            )
        except AdminError as error:
            return replace(row, trouble=str(error)), None
        own_id = _number(info, "replicaId")
        if row.broker_id is not None and own_id is not None and own_id != row.broker_id:
            return replace(row, trouble=f"{row.address} is broker {own_id} now"), None
        return replace(
            row,
            role=ROLES.get(epochs.broker_id, "slave"),
            epoch=epochs.epochs[-1].epoch if epochs.epochs else None,
            max_offset=epochs.max_offset,
            confirm_offset=_number(info, "confirmOffset"),
            role_since_ms=_number(info, "roleSinceTimestamp"),
        ), epochs

    async def _lag(self, row: MemberView, master: MemberView) -> MemberView:
        """`row` with the member's lag in bytes and in time. The lag in time is the age of the first message that the member is
        missing; None if no message begins at the end of its log."""
        if row.max_offset is None or master.max_offset is None:
            return row
        lag_bytes = max(master.max_offset - row.max_offset, 0)
        if not lag_bytes:
            return replace(row, lag_bytes=0, lag_ms=0)
        header_bytes = 0 if self._controllers else ENTRY_HEADER_BYTES
        first = await self._stored(master.address, row.max_offset + header_bytes)
        lag_ms = None if first is None else max(self._client.clock.now_ms() - first[0], 0)
        return replace(row, lag_bytes=lag_bytes, lag_ms=lag_ms)

    async def _elections(
        self, name: str, master_address: str | None, histories: dict[str, BrokerEpochs]
    ) -> tuple[WatchedElection, ...]:
        """The epochs in the master's log, newest first. If no controller names a master, the log is that of the broker with
        the master role, or the longest log."""
        if not histories:
            return ()

        def standing(address: str) -> tuple[bool, bool, int, str]:
            epochs = histories[address]
            return (
                address == master_address,
                ROLES.get(epochs.broker_id) == "master",
                epochs.max_offset,
                address,
            )

        teller = max(histories, key=standing)
        before_first = (
            0 if self._controllers else 2 * ENTRY_HEADER_BYTES
        )  # skip the entry that opens a term, and a header
        found: list[WatchedElection] = []
        for row in reversed(histories[teller].epochs[-ELECTIONS_MAX:]):
            key = (name, row.epoch, row.start_offset)
            if key not in self._firsts and row.end_offset > row.start_offset:
                first = await self._stored(teller, row.start_offset + before_first)
                if first is not None:
                    self._firsts[key] = first
            at_ms, master = self._firsts.get(key, (None, None))
            found.append(WatchedElection(row.epoch, row.start_offset, row.end_offset, at_ms, master))
        return tuple(found)

    async def _stored(self, broker: str, offset: int) -> tuple[int, str] | None:
        """The store time and host of the message that begins at a byte of the log."""
        try:
            message = await messages.at_offset(self._client, broker, offset)
        except AdminError:
            return None
        return None if message is None else (message.store_timestamp_ms, message.store_host)


def leader_of(controllers: Iterable[ControllerView]) -> str | None:
    """The leader according to its own answer, or else to another controller's."""
    rows = tuple(controllers)
    own = next((row.address for row in rows if row.is_leader), None)
    return own or next((row.leader_address for row in rows if row.leader_address), None)


def _dated(row: SetView) -> SetView:
    """The set, with master and store time added to its last election."""
    master, elections = row.master, row.elections
    if master is None or master.role != "master" or not elections or elections[0].epoch != master.epoch:
        return row
    last = replace(elections[0], at_ms=master.role_since_ms or elections[0].at_ms, master=master.address)
    return replace(row, elections=(last, *elections[1:]))


def _number(info: dict[str, str], key: str) -> int | None:
    text = info.get(key, "")
    return int(text) if text.isdecimal() else None


async def controllers_of(client: AdminClient, brokers: list[str]) -> str:
    """The controllers in the brokers' settings; empty in Raft mode. Raises `AdminError` if no broker returns its settings."""
    why = "no broker is registered"
    for address in brokers:
        try:
            settings = await configs.settings_of(client, configs.BROKERS, address)
        except AdminError as error:
            why = str(error)
            continue
        if found := settings.get("controllerAddr"):
            return found
        if settings.get("enableDLegerCommitLog") == "true":
            return ""
        why = f"{address} runs without controllers"
    raise AdminError(f"the controllers are not known ({why}); name them with -a")
