"""A soak: a cluster under load with repeated faults. It is sampled continuously and judged at the end.

Invariant: the page is rewritten during the run and once more at the end, however the run ends. Only a run that was not
interrupted reads the remaining messages again, and may claim that none is lost."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from enum import Enum
from pathlib import Path

from localcluster.cluster import Cluster, ClusterError
from localcluster.drill import DrillFailed
from localcluster.relayprocess import RelayProcess
from localcluster.secured import context_of
from localcluster.soak.book import Book
from localcluster.soak.consumer import Consumer
from localcluster.soak.figures import IN_BYTES, LOAD, SoakFigure, column, formatted
from localcluster.soak.logwatch import LogWatch
from localcluster.soak.message import Messages
from localcluster.soak.page import Chart, Line, Mark, SoakPage, VerdictRow
from localcluster.soak.plan import SoakPlan, page_after_s
from localcluster.soak.recording import Recording
from localcluster.soak.sampler import Sampler
from localcluster.soak.sender import Sender
from localcluster.soak.strikes import Strikes, Struck
from localcluster.soak.verdict import SoakFindings, passed, rows
from localcluster.waiting import NotYet, WaitExpired, wait_for
from mqclient.client import Client
from mqclient.errors import ClientError
from mqruntime.clock import SystemClock

TOPIC, DELAYED_TOPIC = "Soak", "SoakDelayed"
QUEUES = 4
READ_TIMEOUT_MS = 300_000
BROKER_FIGURES = (
    SoakFigure.MIN_OFFSET,
    SoakFigure.MAX_OFFSET,
    SoakFigure.CONFIRM_OFFSET,
    SoakFigure.DISPATCH_BEHIND,
)
LOAD_FIGURES = (SoakFigure.RATE, SoakFigure.SILENCE, SoakFigure.CONSUMER_LAG)


class SoakEnd(Enum):
    """How a soak ended. The value is the exit code."""

    PASSED = 0
    FAILED = 1
    INTERRUPTED = 130


class Soak:
    """One soak. `say` gets a line for each fault, and the page is written to `page_file`."""

    def __init__(
        self,
        cluster: Cluster,
        relay: RelayProcess,
        plan: SoakPlan,
        page_file: Path,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._relay = relay
        self._plan = plan
        self._page_file = page_file
        self._say = say
        self._clock = SystemClock()
        self._run = f"{plan.seed}x{self._clock.now_ms():x}"
        self._book = Book(plan.reserved_s * 1000)
        self._recording = Recording()
        self._findings = SoakFindings()
        self._logs = LogWatch((name, cluster.log_file(name)) for name in cluster.layout.names)
        self._struck: deque[Struck] = deque()
        self._outages_ms: list[tuple[int, int]] = []
        self._began_ms = self._clock.now_ms()
        self._ended_as: SoakEnd | None = None

    async def run(self) -> SoakEnd:
        """Raises what `Cluster.wait_whole` raises before the load begins."""
        end = SoakEnd.FAILED
        try:
            await self._cluster.wait_whole()
            for topic in (TOPIC, DELAYED_TOPIC):
                await self._cluster.create_topic(topic, QUEUES)
            await self._load_and_strike()
            self._look_at_logs()
            end = SoakEnd.PASSED if passed(self.rows()) else SoakEnd.FAILED
        except asyncio.CancelledError:  # Ctrl-C
            end = SoakEnd.INTERRUPTED
        finally:
            self._ended_as = end
            self._write_page()
        return end

    def rows(self) -> list[VerdictRow]:
        layout = self._cluster.layout
        others = ["namesrv", *layout.controller_names]
        return rows(
            self._book, self._recording, self._findings, self._plan.segment_bytes, layout.broker_names, others
        )

    def details(self) -> list[tuple[str, list[str]]]:
        """Further lines that explain the verdicts."""
        outages = [
            f"{self._moment(from_ms)} for {(to_ms - from_ms) / 1000:.1f} s"
            for from_ms, to_ms in self._outages_ms
        ]
        return [
            ("Broken promises", self._book.faults.lines),
            ("Errors in logs", self._logs.lines),
            ("Strikes", [self._described(strike) for strike in self._struck]),
            ("Without an acknowledgement for more than a second", outages),
        ]

    async def _load_and_strike(self) -> None:
        plan, namesrv = self._plan, self._cluster.layout.namesrv
        chance = random.Random(plan.seed)
        messages = Messages(self._run, TOPIC, DELAYED_TOPIC, plan.mean_bytes)
        async with AsyncExitStack() as stack:
            tls = context_of(self._cluster.layout)
            sending, reading = [
                await stack.enter_async_context(Client(namesrv, clock=self._clock, random=chance, tls=tls))
                for _ in range(2)
            ]
            sender = Sender(
                sending.producer("soak"), messages, self._book, self._clock, queues=QUEUES, rate=plan.rate
            )
            consumer = Consumer(reading.consumer("soak"), messages, self._book, self._clock)
            strikes = Strikes(
                self._cluster, self._relay, self._clock, seed=plan.seed, of=plan.kinds, said=self._said
            )
            self._struck, self._outages_ms = strikes.struck, sender.outages_ms
            sampler = Sampler(self._cluster, sender, consumer, self._clock)
            stack.push_async_callback(sampler.close)
            await consumer.start()
            stack.push_async_callback(consumer.stop)
            sender.start()
            stack.push_async_callback(sender.stop)
            self._began_ms = self._clock.now_ms()
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(self._look(sampler, sender, consumer), name="soak looks")
                await self._strike(strikes)
                await sender.stop()
                await self._read_again(consumer)
                looking.cancel()

    async def _strike(self, strikes: Strikes) -> None:
        """Cause at least one fault, and more until the time is over or the cluster does not recover."""
        while True:
            try:
                await strikes.one()
            except DrillFailed as error:
                self._findings.strikes.append(str(error))
            except WaitExpired as error:
                self._findings.strikes.append(str(error))
                return
            except ClusterError as error:
                self._findings.ended.append(str(error))
                return
            if self._clock.now_ms() - self._began_ms >= self._plan.seconds * 1000:
                return

    async def _read_again(self, consumer: Consumer) -> None:
        async def probe() -> None:
            if consumer.lag or self._book.awaited:
                raise NotYet(f"{consumer.lag} unread, {len(self._book.awaited)} delayed ones under way")

        try:
            await wait_for("all that was acknowledged", probe, READ_TIMEOUT_MS)
        except WaitExpired as error:
            self._findings.strikes.append(str(error))
        await consumer.stop()
        self._book.give_up_awaited(consumer.skipped)
        try:
            self._findings.retained = await consumer.read_retained()
        except ClientError as error:
            self._findings.strikes.append(f"what is left cannot be read again: {error}")

    async def _look(self, sampler: Sampler, sender: Sender, consumer: Consumer) -> None:
        page_due_s = 0.0
        while True:
            sender.check()
            consumer.check()
            row = await sampler.look()
            elapsed_s = self._seconds(self._clock.now_ms())
            self._recording.add(elapsed_s, row)
            self._look_at_logs()
            if elapsed_s >= page_due_s:
                self._write_page()
                page_due_s = elapsed_s + page_after_s(elapsed_s)
            await asyncio.sleep(self._plan.sample_s)

    def _look_at_logs(self) -> None:
        self._logs.look()
        self._findings.log_lines = self._logs.bad

    def _write_page(self) -> None:
        temporary = self._page_file.with_name(self._page_file.name + ".tmp")
        temporary.write_text(self._page().html())
        temporary.replace(self._page_file)

    def _page(self) -> SoakPage:
        plan, layout = self._plan, self._cluster.layout
        everyone = [*layout.names, LOAD]
        charts = [self._chart(figure, [LOAD]) for figure in LOAD_FIGURES]
        charts += [
            self._chart(figure, everyone)
            for figure in (SoakFigure.MEMORY, SoakFigure.DESCRIPTORS, SoakFigure.CPU)
        ]
        charts.append(self._chart(SoakFigure.DISK, layout.names))
        charts += [self._chart(figure, layout.broker_names) for figure in BROKER_FIGURES]
        now_ms = self._clock.now_ms()
        marks = [
            Mark(self._seconds(strike.began_ms), self._seconds(strike.whole_ms or now_ms), strike.description)
            for strike in self._struck
        ]
        began = datetime.fromtimestamp(self._began_ms / 1000).astimezone().isoformat(" ", "seconds")
        ended = {None: "still running", SoakEnd.INTERRUPTED: "interrupted"}.get(
            self._ended_as, "came to its end"
        )
        facts = [
            f"{began}, {self._seconds(now_ms) / 60:.1f} of {plan.seconds / 60:.1f} minutes, {ended}; "
            f"seed {plan.seed}; {self._struck[-1].number if self._struck else 0} strikes",
            f"{plan.rate:g} messages a second of {formatted(plan.mean_bytes, in_bytes=True)} on average, one in ten delayed; "
            f"segments of {formatted(plan.segment_bytes, in_bytes=True)}, kept for {plan.reserved_s} s",
        ]
        return SoakPage("Soak", facts, self.rows(), self._recording.times_s, charts, marks, self.details())

    def _chart(self, figure: SoakFigure, names: list[str]) -> Chart:
        lines = [Line(name, self._recording.column(column(name, figure))) for name in names]
        return Chart(figure, figure in IN_BYTES, lines)

    def _said(self, strike: Struck) -> None:
        self._say(self._described(strike))

    def _described(self, strike: Struck) -> str:
        whole = (
            "not whole yet"
            if strike.whole_ms is None
            else f"whole after {(strike.whole_ms - strike.began_ms) / 1000:.1f} s"
        )
        return f"{self._moment(strike.began_ms)} {strike.description}; {whole}"

    def _moment(self, now_ms: int) -> str:
        seconds = round(self._seconds(now_ms))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def _seconds(self, now_ms: int) -> float:
        return max((now_ms - self._began_ms) / 1000, 0.0)
