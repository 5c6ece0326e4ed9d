"""Requests of clients that consume in order: lock queues 41, give them up 42.

Invariant: a client is told that it holds a queue only once every member of the SyncStateSet knows it, so that the next master
does, too; only a master tells it, and what this broker does not have is held by nobody."""

from __future__ import annotations

from broker.admin.agreement import Agreement
from broker.role.membership import Membership
from broker.tables.queuelocks import Queue
from broker.tables.tables import Tables
from remoting.bodies.queues import LockBatchResponseBody, LockQueuesBody, MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router


class LockRequests:
    """Their handlers, on a broker of the set `broker_name`."""

    def __init__(self, broker_name: str, tables: Tables, role: Membership, agreement: Agreement) -> None:
        self._broker_name = broker_name
        self._topics = tables.topics
        self._locks = tables.locks
        self._role = role
        self._agreement = agreement

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.LOCK_BATCH_MQ, self._lock)
        router.add(RequestCode.UNLOCK_BATCH_MQ, self._unlock)

    async def _lock(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        if not self._role.accepts_sends:
            return self._not_master(command)
        wanted = LockQueuesBody.decode(command.body)
        group, client_id = wanted.consumer_group, wanted.client_id
        held = self._locks.lock(group, self._here(wanted), client_id)
        newest = self._locks.newest
        if not self._locks.agreed(group, held, client_id):
            what = f"{client_id} holds {len(held)} queues for {group}"
            answer = await self._agreement.change(command, what, lambda: None)
            if answer.code != ResponseCode.SUCCESS:
                return answer
            held = self._locks.note_agreed(group, held, client_id, newest)
        queues = [MessageQueue(topic, self._broker_name, queue_id) for topic, queue_id in held]
        return command.reply(body=LockBatchResponseBody(queues).encode())

    def _unlock(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        if not self._role.accepts_sends:
            return self._not_master(command)
        given_up = LockQueuesBody.decode(command.body)
        self._locks.unlock(given_up.consumer_group, self._here(given_up), given_up.client_id)
        return command.reply()

    def _here(self, body: LockQueuesBody) -> list[Queue]:
        """Those of the queues that this broker has."""
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
