"""The cost of appending and dispatching 1 KiB messages with shipped settings, in microseconds per message.

    python -m scripts.bench.append [--messages 100000] [--batch 32] [--runs 5] [--directory DIR]

Prints min, median and max over the runs. The log is written through its mapping in a temporary directory. Each run starts with
an empty store, so the figures include disk blocks and page faults of a new segment."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from messagestore.messages import MessageToStore
from messagestore.record import pack_host
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from scripts.bench.options import options

BODY_BYTES = 1024
PROPERTIES = b"UNIQ_KEY\x017F00000100002A9F0000000000000001\x02WAIT\x01true\x02TAGS\x01TagA\x02"


async def one_run(root: Path, messages: int, batch: int) -> tuple[float, float]:
    """(append, dispatch) in microseconds per message."""
    store = MessageStore(real_runtime(root), StoreSettings(), on_fatal=failed)
    await store.start()
    await store.become_master()
    body, host = bytes(range(256)) * (BODY_BYTES // 256), pack_host("10.0.0.9", 5000)
    sends = [
        MessageToStore("TopicTest", queue, body, PROPERTIES, born_timestamp=1_700_000_000_000, born_host=host)
        for queue in range(batch)
    ]
    append_s = 0.0
    for _ in range(messages // batch):
        before = time.perf_counter()
        outcomes = store.append(sends)
        append_s += time.perf_counter() - before
        if outcomes[-1].error is not None:
            raise SystemExit(f"append refused: {outcomes[-1].error}")
    store.set_confirm_offset(store.max_offset())
    before = time.perf_counter()
    while store.dispatch():
        pass
    dispatch_s = time.perf_counter() - before
    stored = messages // batch * batch
    await store.stop()
    return append_s / stored * 1e6, dispatch_s / stored * 1e6


def failed(error: BaseException) -> None:
    raise SystemExit(f"the store failed: {error}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="per run; keep them below one segment")
    parser.add_argument("--batch", type=int, default=32, help="messages per append call")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary store goes")
    arguments = parser.parse_args()
    append: list[float] = []
    dispatch: list[float] = []
    for _ in range(max(arguments.runs, 3)):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as root:
            took = asyncio.run(one_run(Path(root), arguments.messages, arguments.batch))
        append.append(took[0])
        dispatch.append(took[1])
    for name, values in (("append", append), ("dispatch", dispatch)):
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name} us/message  min {low:.2f}  median {middle:.2f}  max {high:.2f}  ({len(values)} runs)")


if __name__ == "__main__":
    main()
