"""One of our members. It appends by itself once it leads, and writes the outcome next to its folder.

python -m scripts.bench.ownmember --peers PEERS --id ID --store FOLDER --load WARM_UP_S SECONDS SIZE IN_FLIGHT"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

import orjson

from dledger import DLedger, NotLeader, OutcomeUnknown, TooManyProposals
from dledger.raft.actions import Role
from dledger.raft.membership import parsed_peers
from mqruntime import log, serve
from mqruntime.realruntime import real_runtime
from scripts.bench.measured import high
from scripts.bench.ownload import OwnLoad, OwnOutcome, outcome_file, parser_of_members

TRY_AGAIN_S = 0.01


class LoadedMember:
    """An app: the member, and its load."""

    def __init__(self, ledger: DLedger, load: OwnLoad, outcome: Path) -> None:
        self.ledger = ledger
        self.load = load
        self.outcome = outcome
        self.leads = asyncio.Event()
        self.loading: asyncio.Task[None] | None = None
        ledger.on_role_change(lambda role, term: self.leads.set() if role is Role.LEADER else None)

    async def start(self) -> None:
        await self.ledger.start()
        self.loading = asyncio.get_running_loop().create_task(self.run())

    async def stop(self) -> None:
        if self.loading is not None:
            self.loading.cancel()
        await self.ledger.stop()

    async def wait_failed(self) -> BaseException:
        return await self.ledger.wait_failed()

    async def run(self) -> None:
        await self.leads.wait()
        await self.append(self.load.warm_up_s)
        outcome = await self.append(self.load.seconds)
        written = self.outcome.with_suffix(".new")
        written.write_bytes(orjson.dumps(asdict(outcome)))
        written.rename(self.outcome)

    async def append(self, seconds: float) -> OwnOutcome:
        body, took, refused = bytes(self.load.size), list[float](), 0
        began, cpu = time.perf_counter(), time.process_time()

        async def caller() -> None:
            nonlocal refused
            while (asked := time.perf_counter()) - began < seconds:
                try:
                    await self.ledger.append(body)
                except (NotLeader, OutcomeUnknown, TooManyProposals):
                    refused += 1
                    await asyncio.sleep(TRY_AGAIN_S)
                else:
                    took.append((time.perf_counter() - asked) * 1000)

        await asyncio.gather(*(caller() for _ in range(self.load.in_flight)))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return OwnOutcome(len(took), refused, seconds, statistics.median(took), high(took), cpu)


def main() -> int:
    asked = parser_of_members(__doc__).parse_args()
    warm_up_s, seconds, size, in_flight = asked.load
    load = OwnLoad(float(warm_up_s), float(seconds), int(size), int(in_flight))
    log.configure(as_json=False)

    def make_member() -> LoadedMember:
        ledger = DLedger(
            self_id=asked.id,
            peers=parsed_peers(asked.peers, "--peers"),
            group=asked.group,
            runtime=real_runtime(Path(asked.store)),
        )
        return LoadedMember(ledger, load, outcome_file(asked.store))

    return serve.run(make_member)


if __name__ == "__main__":
    sys.exit(main())
