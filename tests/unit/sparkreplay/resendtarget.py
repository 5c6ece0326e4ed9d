"""A resend of a store, and a target that keeps its messages in one list for each queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from mqclient.message import OutgoingMessage
from mqclient.producer import SendResult, SendStatus
from mqclient.route import MessageQueue
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read
from sparkreplay.resend.job import ResendJob, open_ledger, prepare, rows_by, what_is_left
from sparkreplay.resend.lane import Sender
from sparkreplay.resend.rate import RateLimit
from sparkreplay.resend.run import ResendLimits, Run, WorkerShare
from sparkreplay.resend.target import TargetQueue

QUEUES = [TargetQueue("copy", "broker-z", number) for number in range(4)]
NO_LIMIT = ResendLimits(RateLimit(None), RateLimit(None), not_taken_s_max=0.2)


class Target:
    """Stores each message. `answer(n)` may raise, before or after storing, instead of acknowledging request n."""

    def __init__(self, answer: Callable[[int], BaseException | None] = lambda request: None) -> None:
        self.stored: dict[int, list[OutgoingMessage]] = {}
        self.requests = 0
        self.answer = answer
        self.stores_before_failing = True

    def sender_of(self, queue_id: int) -> Sender:
        async def send(messages: list[OutgoingMessage]) -> SendResult:
            await asyncio.sleep(0)
            self.requests += 1
            failure = self.answer(self.requests)
            if failure is None or self.stores_before_failing:
                self.stored.setdefault(queue_id, []).extend(messages)
            if failure is not None:
                raise failure
            return SendResult(SendStatus.SEND_OK, MessageQueue("copy", "broker-z", queue_id), 0, (), "")

        return send


def job_of(
    path: str, ledger: Path, namesrv: str = "ns:9876", topic: str = "orders", **options: str
) -> ResendJob:
    read = plan_read(read_options({"path": path, "splitBytes": "4096", **options}))
    return prepare(
        ResendJob(read, topic, "C", "copy", namesrv, str(ledger), rows=rows_by(options)), force=True
    )


def run_of(
    job: ResendJob, target: Target, share: WorkerShare | None = None, limits: ResendLimits = NO_LIMIT
) -> Run:
    path = Path(job.ledger)
    ledger = open_ledger(path, job, QUEUES)
    return Run(
        what_is_left(job.read, ledger, str(path)), ledger, path, topic=job.topic, sender_of=target.sender_of, limits=limits,
        share=share or WorkerShare(),
    )  # fmt: skip


def ids(target: Target) -> dict[int, list[str]]:
    return {
        queue: [message.properties["UNIQ_KEY"] for message in messages]
        for queue, messages in target.stored.items()
    }
