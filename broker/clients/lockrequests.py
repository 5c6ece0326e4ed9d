"""Requests of clients that consume in order: lock queues (LOCK_BATCH_MQ, 41) and unlock them (UNLOCK_BATCH_MQ, 42).

Invariant: a client gets a queue only once every member of the SyncStateSet (in Raft mode a majority) knows its lock, so that
the next master knows the lock too. Only a master answers, and nobody holds queues that this broker does not have. A master that
may have an unknown successor does not renew a lock by itself, because the successor counts leases from its own start. Before it
renews, all possible successors must have been slaves of this master a moment ago; in Raft mode a majority must have confirmed
that this master leads."""

from __future__ import annotations

from broker.clients.requesters import is_passed_on
from broker.neighbours.agreement import MetadataReplication
from broker.role.membership import VOUCHED_MS, Membership
from broker.tables.queuelocks import Queue
from broker.tables.subscriptiongroups import NAME_LENGTH_MAX
from broker.tables.tables import Tables
from ha.service.replication import Replication
from mqruntime.clock import Clock
from remoting.bodies.queues import LockBatchResponseBody, LockQueuesBody, MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router


class LockRequests:
    """The handlers, on a broker of the set `broker_name`."""

    def __init__(
        self,
        broker_name: str,
        tables: Tables,
        role: Membership,
        agreement: MetadataReplication,
        ha: Replication,
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._tables = tables
        self._clock = clock
        self._topics = tables.topics
        self._locks = tables.locks
        self._role = role
        self._agreement = agreement
        self._ha = ha
        self._witnessed: tuple[int, int] | None = None
        """The masterEpoch and the time in ms at which all possible successors were slaves of this master."""
        self._followed = (0, 0)
        """The masterEpoch and the time in ms at which a majority that followed this master was asked."""

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.LOCK_BATCH_MQ, self._lock)
        router.add(RequestCode.UNLOCK_BATCH_MQ, self._unlock)

    async def _lock(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        if not self._role.accepts_sends:
            return self._not_master(command)
        wanted = LockQueuesBody.from_request(command.body)
        group, client_id = wanted.consumer_group, wanted.client_id
        if max(len(group), len(client_id)) > NAME_LENGTH_MAX:
            why = f"a group and a client id have {NAME_LENGTH_MAX} characters at most"
            return command.reply(ResponseCode.SYSTEM_ERROR, why)
        held = self._locks.lock(group, self._here(wanted), client_id, is_passed_on=is_passed_on(peer))
        newest = self._locks.newest
        now_ms, epoch = self._clock.monotonic_ms(), self._role.master_epoch
        doubtful = self._role.may_have_a_successor(now_ms) and not self._is_witnessed(epoch, now_ms)
        if held and (doubtful or not self._locks.agreed(group, held, client_id)):
            what = f"{client_id} holds {len(held)} queues for {group}"
            make = self._tables.renew_version if doubtful else lambda: None
            answer = await self._agreement.change(command, what, make)
            if answer.code != ResponseCode.SUCCESS:
                return answer
            if doubtful:
                self._witnessed = epoch, now_ms
            held = self._locks.note_agreed(group, held, client_id, newest)
        if held and not await self._still_leads(epoch):
            return self._not_master(command)
        queues = [MessageQueue(topic, self._broker_name, queue_id) for topic, queue_id in held]
        return command.reply(body=LockBatchResponseBody(queues).encode())

    def _unlock(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        if not self._role.accepts_sends:
            return self._not_master(command)
        given_up = LockQueuesBody.from_request(command.body)
        queues, passed_on = self._here(given_up), is_passed_on(peer)
        self._locks.unlock(given_up.consumer_group, queues, given_up.client_id, is_passed_on=passed_on)
        return command.reply()

    def _is_witnessed(self, epoch: int, now_ms: int) -> bool:
        """Whether this was so recent that a lease at any successor lasts longer than the client's."""
        return (
            self._witnessed is not None
            and self._witnessed[0] == epoch
            and now_ms < self._witnessed[1] + VOUCHED_MS
        )

    async def _still_leads(self, epoch: int) -> bool:
        """Whether this broker still leads: replicas that elect their master confirmed it recently, or confirm it now."""
        now_ms = self._clock.monotonic_ms()
        if self._followed[0] != epoch or now_ms >= self._followed[1] + VOUCHED_MS:
            if not await self._ha.still_leads():
                return False
            self._followed = epoch, now_ms
        return self._role.accepts_sends and self._role.master_epoch == epoch

    def _here(self, body: LockQueuesBody) -> list[Queue]:
        """The requested queues that this broker has."""
        return [
            (queue.topic, queue.queue_id)
            for queue in body.mq_set
            if queue.broker_name == self._broker_name
            and (topic := self._topics.find(queue.topic)) is not None
            and 0 <= queue.queue_id < topic.read_queue_nums
        ]

    def _not_master(self, command: RemotingCommand) -> RemotingCommand:
        master = f": ask {self._role.master_address}" if self._role.master_address else ""
        return command.reply(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker is not the master of its set{master}"
        )
