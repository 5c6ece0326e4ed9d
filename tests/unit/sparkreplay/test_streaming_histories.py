"""With any log history, replicas, crashes and limits, a stream has each committed message once, in order."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkreplay.errors import ForeignLog
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.streamscene import Query

LIMITS: list[dict[str, str]] = [
    {},
    {"maxOffsetsPerTrigger": "3"},
    {"maxBytesPerTrigger": "4096"},
    {"maxBytesPerTrigger": "5000", "maxOffsetsPerTrigger": "20"},
    {"minOffsetsPerTrigger": "8", "maxTriggerDelay": "5s"},
]
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 30)),
    st.tuples(st.just("commit"), st.integers(0, 100)),
    st.tuples(st.just("elect"), st.just(0)),
    st.tuples(st.just("trigger"), st.integers(0, 6)),
    st.tuples(st.just("plan, then crash"), st.integers(0, 1)),
    st.tuples(st.just("start again"), st.integers(0, len(LIMITS) * 2 - 1)),
    st.tuples(st.just("delete what was read"), st.just(0)),
    st.tuples(st.just("meet another log"), st.integers(1, 120)),
)


class History:
    """One log on two replicas, of which the second always lags, and a query that reads either."""

    def __init__(self, root: Path) -> None:
        self.log = StoreFolder(root / "one", segment_bytes=4096)
        self.roots = [root / "one", root / "two"]
        self.epochs: tuple[tuple[int, int], ...] = ((1, 0),)
        self.bound = 0
        self.lagging = 0
        self.log.add(properties="UNIQ_KEY\x010\x02")
        self.write()
        self.query = Query(path=str(self.roots[0]))

    def write(self) -> None:
        for root, bound in zip(self.roots, (self.bound, self.lagging), strict=True):
            self.log.root = root
            self.log.write(confirm=bound, epochs=self.epochs)

    def append(self, count: int) -> None:
        for number in range(len(self.log.ends), len(self.log.ends) + count):
            body = bytes(number * 37 % 500)
            self.log.add(queue_id=number % 3, body=body, properties=f"UNIQ_KEY\x01{number}\x02")
        self.write()

    def commit(self, percent: int) -> None:
        """Moves the bound to any byte of the new records; the lagging replica moves to the old bound."""
        self.lagging = self.bound
        self.bound += (len(self.log.log) - self.bound) * percent // 100
        self.write()

    def elect(self) -> None:
        if self.log.ends[-1] > self.epochs[-1][1]:
            self.epochs += ((self.epochs[-1][0] + 1, self.log.ends[-1]),)
            self.write()

    def trigger(self, seconds: int) -> None:
        self.query.now_s += seconds
        if len(self.query.offsets) == self.query.committed or not self.behind():
            self.query.trigger()

    def plan_then_crash(self, read: int) -> None:
        if len(self.query.offsets) == self.query.committed:
            self.query.plan_batch()
        if read and len(self.query.offsets) > self.query.committed and not self.behind():
            self.query.read_batch()
        self.start_again(0)

    def start_again(self, choice: int) -> None:
        self.query.restart(path=str(self.roots[choice % 2]), **LIMITS[choice // 2])

    def behind(self) -> bool:
        """Whether the planned batch ends above the end of the replica that is read."""
        bound = self.bound if self.query.reader.request[0].paths[0] == str(self.roots[0]) else self.lagging
        return self.planned_end() > bound

    def planned_end(self) -> int:
        end: int = json.loads(self.query.offsets[-1])["sets"]["broker-a"]["offset"]
        return end

    def delete_what_was_read(self) -> None:
        """Retention takes the first file once no batch needs it."""
        done = self.log.ends[len(self.query.rows) - 1] if self.query.rows else 0
        if self.log.log_min + self.log.segment_bytes <= done:
            for root in self.roots:
                (root / "commitlog" / f"{self.log.log_min:020d}").unlink()
            self.log.log_min += self.log.segment_bytes

    def meet_another_log(self, count: int) -> None:
        """A log of the same name and any length. It is not read after the own log was read or planned."""
        other = StoreFolder(self.roots[0].parent / "other", self.log.segment_bytes)
        for number in range(count):
            body = bytes(number * 37 % 500)
            other.add(queue_id=number % 3, body=body, properties=f"UNIQ_KEY\x01{number}\x02", stored_ms=1)
        if self.query.offsets:
            self.query.restart(path=other.write(epochs=self.epochs[:1]))
            with pytest.raises(ForeignLog):
                self.query.trigger()
            shutil.rmtree(other.root)
        self.start_again(0)

    def finish(self) -> None:
        self.bound = self.lagging = len(self.log.log)
        self.write()
        self.start_again(0)
        self.query.run()


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=60)
def test_a_stream_has_every_committed_message_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as root:
        history = History(Path(root))
        for step, choice in steps:
            match step:
                case "append":
                    history.append(choice)
                case "commit":
                    history.commit(choice)
                case "elect":
                    history.elect()
                case "trigger":
                    history.trigger(choice)
                case "plan, then crash":
                    history.plan_then_crash(choice)
                case "start again":
                    history.start_again(choice)
                case "delete what was read":
                    history.delete_what_was_read()
                case "meet another log":
                    history.meet_another_log(choice)
            read = history.query.ids
            assert read == [str(number) for number in range(len(read))]
            assert not read or history.log.ends[len(read) - 1] <= history.bound
        history.finish()
        assert history.query.ids == [str(number) for number in range(len(history.log.ends))]
