"""A resend to a target of one list for each queue: order, retries, continuation after a kill."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import sparkreplay.resend.job
import sparkreplay.resend.lane
import sparkreplay.resend.run
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import OutgoingMessage
from mqclient.producer import SendResult
from remoting.codes import ResponseCode
from sparkreplay.commands.resend import default_ledger
from sparkreplay.errors import OptionError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.resend.errors import ResendFailed, ResendLedgerUnusable
from sparkreplay.resend.job import (
    ResendJob,
    epochs_between,
    only_one,
    only_run,
    open_ledger,
    prepare,
    refuse_other_workers,
    send_share,
    what_is_left,
)
from sparkreplay.resend.lane import Sender
from sparkreplay.resend.ledger import Ledger, SourceProgress, decode_ledger
from sparkreplay.resend.rate import RateLimit
from sparkreplay.resend.run import ResendCounts, Run, WorkerShare
from tests.unit.sparkreplay.ledgerfolder import LedgerFolder
from tests.unit.sparkreplay.resendtarget import NO_LIMIT, QUEUES, Target, ids, job_of, run_of
from tests.unit.sparkreplay.storefolder import StoreFolder


class Killed(BaseException):
    """The process ends here; nothing after it runs."""


def source_store(root: Path, count: int = 60, kind: type[StoreFolder] = StoreFolder) -> StoreFolder:
    store = kind(root, segment_bytes=4096)
    for number in range(count):
        store.add(
            topic=("orders", "other")[number % 3 == 2],
            queue_id=number % 4,
            body=b"x" * (number * 7 % 90),
            properties=f"UNIQ_KEY\x01K{number}\x02TAGS\x01T\x02DELAY\x013\x02TRAN_MSG\x01true\x02",
        )
    return store


def expected(store: StoreFolder, count: int = 60) -> dict[int, list[str]]:
    wanted: dict[int, list[str]] = {}
    for number in range(count):
        if number % 3 != 2:
            wanted.setdefault(number % 4, []).append(f"K{number}")
    return wanted


def test_each_queue_is_resent_completely_and_in_order(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    target = Target()
    run = run_of(job_of(store.write(), tmp_path / "ledger"), target)
    asyncio.run(run.send_all())
    assert ids(target) == expected(store)
    first = target.stored[0][0]
    assert (first.born_timestamp_ms, first.flag) == (1700000000000, 7)
    assert first.properties == {
        "UNIQ_KEY": "K0", "TAGS": "T", "REPLAY_SRC": "broker-a@0", "REPLAY_QUEUE": "orders/0@0", "REPLAY_EPOCH": "1",
    }  # fmt: skip
    assert (run.counts.acknowledged, run.counts.maybe_twice) == (40, 0)


def test_a_born_time_beyond_the_calendar_becomes_the_time_of_the_resend(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path / "store")
    for born_ms in (2**63 - 1, -(2**63), 253_402_300_800_000, 1_700_000_000_000):  # the third: the year 10000
        store.add(born_ms=born_ms)
    target = Target()
    asyncio.run(run_of(job_of(store.write(), tmp_path / "ledger"), target).send_all())
    assert [message.born_timestamp_ms for message in target.stored[0]] == [
        None, None, 253_402_300_800_000, 1_700_000_000_000,
    ]  # fmt: skip


def test_messages_of_one_millisecond_share_a_request_except_compressed_ones(tmp_path: Path) -> None:
    import zlib

    store = StoreFolder(tmp_path / "store")
    for number in range(9):
        store.add(
            body=zlib.compress(b"z" * 50) if number == 4 else b"plain", sys_flag=1 if number == 4 else 0
        )
    target = Target()
    asyncio.run(run_of(job_of(store.write(), tmp_path / "ledger"), target).send_all())
    assert target.requests == 3 and len(target.stored[0]) == 9
    opened = target.stored[0][4]
    assert opened.sys_flag == 1 and zlib.decompress(opened.body) == b"z" * 50


@pytest.mark.parametrize("stored", [True, False])
def test_an_unknown_outcome_is_sent_again_and_counted(tmp_path: Path, stored: bool) -> None:
    store = source_store(tmp_path / "store")
    target = Target(lambda request: SendOutcomeUnknown("copy", "h:1", "gone") if request == 2 else None)
    target.stores_before_failing = stored
    run = run_of(job_of(store.write(), tmp_path / "ledger"), target)
    asyncio.run(run.send_all())
    twice = sum(len(messages) - len(set(messages)) for messages in ids(target).values())
    assert run.counts.maybe_twice > 0 and (0 < twice <= run.counts.maybe_twice if stored else twice == 0)
    assert {queue: list(dict.fromkeys(found)) for queue, found in ids(target).items()} == expected(store)


def test_a_message_that_the_target_rejects_permanently_ends_the_run(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    target = Target(lambda request: SendRefused("copy", "too big", ResponseCode.MESSAGE_ILLEGAL))
    with pytest.raises(
        ResendFailed, match=r"broker-a orders/\d: the message at physical offset \d+.*too big"
    ):
        asyncio.run(run_of(job_of(store.write(), tmp_path / "ledger"), target).send_all())


def test_a_resend_fails_when_the_target_rejects_sends_for_too_long(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    target = Target(lambda request: SendRefused("copy", "no master"))
    target.stores_before_failing = False
    with pytest.raises(ResendFailed, match="not taken for 0.2 s"):
        asyncio.run(run_of(job_of(store.write(), tmp_path / "ledger"), target).send_all())
    again = Target()
    run = run_of(job_of(str(tmp_path / "store"), tmp_path / "ledger"), again)
    asyncio.run(run.send_all())
    assert ids(again) == expected(store)


@pytest.mark.parametrize("kind", [StoreFolder, LedgerFolder])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 12])
def test_a_killed_run_continues_without_a_gap_and_counts_possible_duplicates(
    tmp_path: Path, at: int, kind: type[StoreFolder]
) -> None:
    store = source_store(tmp_path / "store", kind=kind)
    ledger = tmp_path / "ledger"
    job = job_of(store.write(), ledger)
    target = Target()
    kept: list[bytes] = []

    def kill(request: int) -> BaseException | None:
        if request == at:
            kept.append(ledger.read_bytes())  # what is on disk when the process dies
            return Killed()
        return None

    target.answer = kill
    with pytest.raises(BaseExceptionGroup):
        asyncio.run(run_of(job, target).send_all())
    ledger.write_bytes(kept[0])
    target.answer = lambda request: None
    again = run_of(job_of(str(tmp_path / "store"), ledger), target)
    asyncio.run(again.send_all())
    twice = sum(len(found) - len(set(found)) for found in ids(target).values())
    assert {queue: list(dict.fromkeys(found)) for queue, found in ids(target).items()} == expected(store)
    assert twice <= again.counts.maybe_twice
    assert decode_ledger(str(ledger), ledger.read_bytes()).maybe_twice == again.counts.maybe_twice


@pytest.mark.parametrize("answered", [True, False])
def test_runs_killed_one_after_another_count_every_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """No run lives long enough to record an acknowledgement."""
    monkeypatch.setattr(sparkreplay.resend.run, "AGAIN_MESSAGES", 1)
    monkeypatch.setattr(sparkreplay.resend.lane, "RETRY_S_MIN", 0)
    monkeypatch.setattr("os.fsync", lambda file: None)  # no power is lost here
    patient = replace(NO_LIMIT, not_taken_s_max=60)
    store = source_store(tmp_path / "store")
    path, ledger, target = store.write(), tmp_path / "ledger", Target()
    for _ in range(3):
        kept: list[bytes] = []

        def kill(
            request: int, first: int = target.requests + 1, kept: list[bytes] = kept
        ) -> BaseException | None:
            kept[:] = [ledger.read_bytes()]
            if not answered and request < first + 8:
                return SendOutcomeUnknown("copy", "h:1", "gone")
            return Killed() if request == first + (4 if answered else 10) else None

        target.answer = kill
        with pytest.raises(BaseExceptionGroup):
            asyncio.run(run_of(job_of(path, ledger), target, limits=patient).send_all())
        ledger.write_bytes(kept[0])
    target.answer = lambda request: None
    asyncio.run(run_of(job_of(path, ledger), target).send_all())
    assert {queue: list(dict.fromkeys(found)) for queue, found in ids(target).items()} == expected(store)
    copies = sum(len(found) - len(set(found)) for found in ids(target).values())
    assert 0 < copies <= decode_ledger(str(ledger), ledger.read_bytes()).maybe_twice


def test_messages_never_sent_by_a_killed_run_are_not_counted_as_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparkreplay.resend.lane, "BATCH_MESSAGES_MAX", 1)
    ledger, target = tmp_path / "ledger", Target()
    job = job_of(source_store(tmp_path / "store").write(), ledger)
    kept: list[bytes] = []

    def kill(request: int) -> BaseException:
        kept.append(ledger.read_bytes())
        return Killed()

    target.answer = kill
    with pytest.raises(BaseExceptionGroup):
        asyncio.run(run_of(job, target).send_all())
    ledger.write_bytes(kept[0])  # it allowed all forty, and one was sent
    target.answer = lambda request: Killed() if request > 8 else None
    interrupted = run_of(job, target)
    with pytest.raises(BaseExceptionGroup):
        asyncio.run(interrupted.send_all())
    assert 0 < interrupted.counts.maybe_twice < 16
    assert decode_ledger(str(ledger), ledger.read_bytes()).maybe_twice == interrupted.counts.maybe_twice


def test_the_ledger_is_not_written_for_each_row_of_possible_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparkreplay.resend.lane, "BATCH_MESSAGES_MAX", 1)
    path, written = tmp_path / "ledger", list[bytes]()
    job = job_of(source_store(tmp_path / "store", 600).write(), path)
    half = job.read.sources[0].end // 2
    path.write_bytes(
        Ledger(open_ledger(path, job, QUEUES).purpose, {"broker-a": SourceProgress(0, half)}).encode()
    )
    beyond = asyncio.Event()  # `half`: the other lanes are

    def notify(request: int) -> None:
        if request == 200:
            beyond.set()

    target = Target(notify)

    def sender_of(queue_id: int) -> Sender:
        send = target.sender_of(queue_id)

        async def late(messages: list[OutgoingMessage]) -> SendResult:
            if queue_id == 0:
                await beyond.wait()
            return await send(messages)

        return late

    ledger = open_ledger(path, job, QUEUES)
    run = Run(
        what_is_left(job.read, ledger, str(path)), ledger, path, topic="orders", sender_of=sender_of, limits=NO_LIMIT
    )  # fmt: skip
    monkeypatch.setattr(
        sparkreplay.resend.run, "replace_durably", lambda path, content: written.append(content)
    )
    asyncio.run(run.send_all())
    assert ids(target) == expected(StoreFolder(tmp_path), 600)
    assert 150 < run.counts.maybe_twice < 250
    assert len(written) < 10
    assert decode_ledger("the last", written[-1]).maybe_twice == run.counts.maybe_twice


def test_a_finished_ledger_continues_with_newly_committed_messages(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    target = Target()
    job = job_of(store.write(confirm=store.ends[29]), tmp_path / "ledger")
    asyncio.run(run_of(job, target).send_all())
    store.write()
    run = run_of(job_of(str(tmp_path / "store"), tmp_path / "ledger"), target)
    asyncio.run(run.send_all())
    assert ids(target) == expected(store) and run.counts.maybe_twice == 0


@pytest.mark.parametrize(
    ("first", "then", "reason"),
    [
        ({"queues": "0"}, {"queues": "1"}, "queues 0 and not 1"),
        ({"queues": "0"}, {}, "queues 0 and not left out"),
        ({}, {"startingTimestamp": "5"}, "startingtimestamp left out and not 5"),
        ({"startingOffsets": "END"}, {}, r"startingoffsets \d+ and not left out"),
        ({"endingOffsets": '{"orders": {"0": 2}}'}, {}, "endingoffsets"),
    ],
)
def test_a_ledger_is_not_continued_for_rows_that_it_skipped(
    tmp_path: Path, first: dict[str, str], then: dict[str, str], reason: str
) -> None:
    store = source_store(tmp_path / "store")
    path, ledger = store.write(), tmp_path / "ledger"
    begun = {name: value.replace("END", str(store.ends[29])) for name, value in first.items()}
    asyncio.run(run_of(job_of(path, ledger, **begun), Target()).send_all())
    with pytest.raises(ResendLedgerUnusable, match=f"{reason}.* would never be sent"):
        run_of(job_of(path, ledger, **then), Target())


def test_a_ledger_is_not_continued_for_another_cluster_of_the_same_name(tmp_path: Path) -> None:
    path, ledger = source_store(tmp_path / "store").write(), tmp_path / "ledger"
    asyncio.run(run_of(job_of(path, ledger, "prod-1:9876;prod-2:9876"), Target()).send_all())
    with pytest.raises(ResendLedgerUnusable, match="name servers prod-1:9876;prod-2:9876, not staging:9876"):
        run_of(job_of(path, ledger, "staging:9876"), Target())
    for namesrv in ("prod-2:9876", "prod-3:9876; prod-1:9876", "prod-3:9876"):
        run = run_of(job_of(path, ledger, namesrv), Target())
        asyncio.run(run.send_all())
        assert (run.counts.acknowledged, run.counts.acknowledged_before) == (0, 40)


def test_a_ledger_is_not_continued_for_another_log_of_the_same_broker_name(tmp_path: Path) -> None:
    one, ledger = source_store(tmp_path / "one"), tmp_path / "ledger"
    asyncio.run(run_of(job_of(one.write(), ledger), Target()).send_all())
    other = StoreFolder(tmp_path / "other", segment_bytes=4096)
    for number in range(60):
        other.add(topic="orders", stored_ms=1_800_000_000_000 + number)
    with pytest.raises(ResendLedgerUnusable, match="another log of the name broker-a.*another record at 0"):
        run_of(job_of(other.write(), ledger), Target())


def test_a_ledger_recognises_its_log_after_the_first_segments_were_deleted(tmp_path: Path) -> None:
    store, ledger = source_store(tmp_path / "store", 200), tmp_path / "ledger"
    target = Target()
    asyncio.run(run_of(job_of(store.write(), ledger), target).send_all())
    for _ in range(80):
        store.add(topic="orders", properties="UNIQ_KEY\x01late\x02")
    store.write()
    store.delete_first(2)
    run = run_of(job_of(str(store.root), ledger), target)
    asyncio.run(run.send_all())
    assert run.counts.acknowledged == 80


def test_a_ledger_continues_past_a_physical_end_and_with_smaller_splits(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    path, ledger, target = store.write(), tmp_path / "ledger", Target()
    job = job_of(path, ledger, endingOffsets=str(store.ends[29]), startingOffsets="earliest")
    asyncio.run(run_of(job, target).send_all())
    run = run_of(job_of(path, ledger, crc="true"), target)
    asyncio.run(run.send_all())
    assert ids(target) == expected(store)
    assert (run.counts.acknowledged, run.counts.acknowledged_before) == (20, 20)


def test_possible_duplicates_of_earlier_runs_stay_counted(tmp_path: Path) -> None:
    path = source_store(tmp_path / "store").write()
    target = Target(lambda request: SendOutcomeUnknown("copy", "h:1", "gone") if request == 2 else None)
    first = run_of(job_of(path, tmp_path / "ledger"), target)
    asyncio.run(first.send_all())
    again = run_of(job_of(path, tmp_path / "ledger"), target)
    asyncio.run(again.send_all())
    assert first.counts.maybe_twice > 0
    assert (again.counts.maybe_twice, again.counts.maybe_twice_before) == (0, first.counts.maybe_twice)


def test_a_ledger_that_cannot_be_locked_is_refused_with_the_hint_to_move_it(tmp_path: Path) -> None:
    (tmp_path / "ledger.lock").mkdir()  # as if the folder were read-only
    with (
        pytest.raises(
            ResendLedgerUnusable, match=r"ledger.lock cannot be made.*move the ledger to one that is"
        ),
        only_one(tmp_path / "ledger"),
    ):
        pass


def test_a_sigterm_ends_the_run_although_a_callback_swallows_its_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(*arguments: object) -> ResendCounts:
        with suppress(KeyboardInterrupt):  # as uvloop does where it calls a protocol
            signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(1)
        return ResendCounts()

    monkeypatch.setattr(sparkreplay.resend.job, "send_with_ledger", work)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            send_share(job_of(source_store(tmp_path / "store").write(), tmp_path / "ledger"))
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_ledgers_lock_is_released_with_its_run(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with only_one(ledger):
        with (
            pytest.raises(ResendLedgerUnusable, match="in use by another run; wait for its end$"),
            only_one(ledger),
        ):
            pass
        assert [path.name for path in tmp_path.iterdir()] == ["ledger.lock"]
    assert list(tmp_path.iterdir()) == []
    with only_one(ledger):
        """It can be taken again."""


def test_another_number_of_workers_is_refused_with_the_earlier_number(tmp_path: Path) -> None:
    job = job_of(source_store(tmp_path / "store").write(), tmp_path / "ledger")
    (tmp_path / "ledger.1-of-3").write_bytes(b"")
    with pytest.raises(ResendLedgerUnusable, match="begun with --workers 3; go on with as many"):
        refuse_other_workers(job, 2)
    for left in ("ledger.1-of-2.unfinished", "ledger.0-of-2.lock"):  # by a kill
        (tmp_path / left).write_bytes(b"")
    (tmp_path / "ledger.1-of-3").replace(tmp_path / "ledger.1-of-2")
    refuse_other_workers(job, 2)
    (tmp_path / "ledger.1-of-2").replace(tmp_path / "ledger")
    with pytest.raises(ResendLedgerUnusable, match="begun with --workers 1; go on with as many"):
        refuse_other_workers(job, 2)


def test_runs_of_any_number_of_workers_exclude_each_other_before_there_is_a_ledger(tmp_path: Path) -> None:
    job = job_of(source_store(tmp_path / "store").write(), tmp_path / "ledger")
    with (
        only_run(job, 2),
        pytest.raises(ResendLedgerUnusable, match="in use by another run"),
        only_run(job, 3),
    ):
        pass
    with (
        only_run(job, 2),
        pytest.raises(ResendLedgerUnusable, match="in use by another run"),
        only_one(tmp_path / "ledger"),
    ):
        pass


def test_a_ledger_of_long_names_fits_a_file_system(tmp_path: Path) -> None:
    one, other = (default_ledger("t" * 250 + end, "DefaultCluster", "u" * 250) for end in "ab")
    assert one != other and max(len(one), len(other)) < 210
    assert default_ledger("orders", "C", "a%b") == "resend-orders-to-C-a_b.json"


def test_workers_share_the_queues_among_them(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    path = store.write()
    target = Target()
    for number in range(2):
        job = job_of(path, tmp_path / f"ledger{number}")
        asyncio.run(run_of(job, target, WorkerShare(number, 2)).send_all())
    assert ids(target) == expected(store)


def test_a_ledger_is_continued_for_the_same_resend_only(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    ledger = tmp_path / "ledger"
    asyncio.run(run_of(job_of(store.write(), ledger), Target()).send_all())
    other = ResendJob(
        job_of(str(tmp_path / "store"), ledger).read, "orders", "C", "elsewhere", "", str(ledger)
    )
    with pytest.raises(ResendLedgerUnusable, match="target C/copy, not C/elsewhere"):
        open_ledger(ledger, other, QUEUES)
    store.write_epochs(((1, 0), (3, 100)))
    with pytest.raises(ResendLedgerUnusable, match="truncated below what was sent"):
        run_of(job_of(str(tmp_path / "store"), ledger), Target())
    ledger.write_bytes(b'{"version": 1')
    with pytest.raises(ResendLedgerUnusable, match="is damaged"):
        run_of(job_of(str(tmp_path / "store"), ledger), Target())


def test_messages_deleted_before_they_were_resent_are_named(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store", 200)
    ledger = tmp_path / "ledger"
    asyncio.run(run_of(job_of(store.write(confirm=store.ends[9]), ledger), Target()).send_all())
    store.write()
    for name in ("00000000000000000000", "00000000000000004096"):
        (tmp_path / "store" / "commitlog" / name).unlink()
    store.write_epochs(((1, 8192),))
    with pytest.raises(ResendLedgerUnusable, match="was deleted before it was sent"):
        run_of(job_of(str(tmp_path / "store"), ledger), Target())


def test_the_brokers_own_topics_are_not_sent(tmp_path: Path) -> None:
    store = source_store(tmp_path / "store")
    read = plan_read(read_options({"path": store.write()}))
    with pytest.raises(OptionError, match="belongs to the brokers"):
        prepare(ResendJob(read, "SCHEDULE_TOPIC_XXXX", "C", "copy", "", "ledger"), force=True)


def test_epochs_are_compared_where_both_logs_still_have_them() -> None:
    assert epochs_between([[1, 0], [2, 50], [5, 90]], 60, 80) == [[2, 60]]
    assert epochs_between([[2, 55], [5, 90]], 60, 95) == [[2, 60], [5, 90]]
    assert epochs_between([], 0, 10) == []


def test_a_rate_is_kept_after_a_short_burst() -> None:
    limit = RateLimit(100.0)
    waits = [limit.wait_s(10, 5.0) for _ in range(4)]
    assert waits == [pytest.approx(0.0), pytest.approx(0.1), pytest.approx(0.2), pytest.approx(0.3)]
    assert RateLimit(None).wait_s(1 << 30, 0.0) == 0.0


def test_a_ledger_is_read_back_as_it_was_written() -> None:
    purpose = {
        "topic": "t",
        "target": "C/t",
        "namesrv": ["ns:9876"],
        "queues": ["b/0"],
        "rows": {"queues": "0"},
        "epochs": {"b": [[1, 0]]},
        "logs": {"b": {"0": "00ff"}},
    }
    ledger = Ledger(purpose, {"b": SourceProgress(7, 9, {0: 8})}, 3, 1)
    assert decode_ledger("x", ledger.encode()) == ledger


@pytest.mark.parametrize("kind", [StoreFolder, LedgerFolder])
def test_a_run_resumes_at_the_record_below_which_all_are_acknowledged(
    tmp_path: Path, kind: type[StoreFolder]
) -> None:
    store = source_store(tmp_path / "store", kind=kind)
    job = job_of(store.write(), tmp_path / "ledger")
    ledger = open_ledger(tmp_path / "ledger", job, QUEUES)
    for number in (0, 3, 30, 59):
        ledger.sources["broker-a"].done_below = at = store.records[number][2]
        found = [
            offset
            for batch in read_all(what_is_left(job.read, ledger, str(tmp_path / "ledger")))
            for offset in batch.column("physical_offset").to_pylist()
        ]
        assert found == [place for topic, _, place in store.records if place >= at and topic == "orders"]
