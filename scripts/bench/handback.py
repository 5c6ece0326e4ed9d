"""The master's cost of a message that a consumer hands back (CONSUMER_SEND_MSG_BACK, 36): CPU for each message, by how many
come in one receive.

    python -m scripts.bench.handback [--receives 300] [--groups 1,8,32,256]

The master is that of scripts.bench.sendpath, with slaves that acknowledge at once. Its messages are handed back by their
offsets, as by Java's push consumer, and answers are thrown away. CPU is that of the one thread, in the cheapest tenth of
receives."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles

import uvloop

from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import encode
from remoting.headers.messages import ConsumerSendMsgBackHeader
from scripts.bench import sendpath
from scripts.bench.measured import machine
from scripts.bench.options import bounded, options
from scripts.bench.sendpath import TOPIC, Master, numbers, properties

GROUP = "CG"
KEPT = 1_024
"""Messages that are handed back in turn."""
TURNS_MAX = 1_000


def hand_back(opaque: int, offset: int) -> bytes:
    header = ConsumerSendMsgBackHeader(offset, GROUP, 0, None, TOPIC, False, 16)
    command = RemotingCommand(
        RequestCode.CONSUMER_SEND_MSG_BACK, opaque, ext=header.to_ext(), language="JAVA"
    )
    return b"".join(map(bytes, encode(command)))


async def filled(master: Master, body: bytes) -> list[int]:
    """The offsets of the sent messages."""
    offsets = []
    for number in range(KEPT):
        offsets.append(master.store.max_offset())
        sent = sendpath.request(RequestCode.SEND_MESSAGE_V2, number, properties(number), body, "false")
        await master.serve([sent])
    return offsets


async def served(master: Master, received: bytes) -> None:
    """Serve until the answers to one receive have left."""
    answered = await master.serve([received])
    for _ in range(TURNS_MAX):
        if answered:
            return
        answered = await master.serve([])
    raise SystemExit("the master does not answer")


async def measure(root: Path, groups: Sequence[int], receives: int) -> None:
    master = Master(root, 1)
    await master.start()
    offsets = await filled(master, b"x" * 1024)
    for group in groups:
        spent: list[float] = []
        for number in range(receives):
            first = number * group
            received = b"".join(hand_back(k, offsets[(first + k) % KEPT]) for k in range(group))
            before = time.thread_time()
            await served(master, received)
            spent.append((time.thread_time() - before) / group)
        print(f"{group:4} in a receive: {quantiles(spent, n=10)[0] * 1e6:7.1f} us a message", flush=True)
    for slave, _ in master.slaves:
        slave.connection_lost(None)
    await master.ha.stop()
    await master.store.stop()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--receives", type=bounded(20, 100_000), default=300, help="of each size")
    parser.add_argument("--groups", type=numbers, default=[1, 8, 32, 256], help="messages in one receive")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as root:
        uvloop.run(measure(Path(root), given.groups, given.receives))


if __name__ == "__main__":
    main()
