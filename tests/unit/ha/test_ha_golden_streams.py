"""Links between Java brokers, as captured: our slave takes the master's side, our master the slave's.

Golden bytes: RocketMQ 5.3.3, tests/vectors/ha."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from epochfile.format import decode
from epochfile.history import EpochHistory
from ha.frames import Handshake, decode_ack
from ha.master.link import Acked, Batch, Close, HandshakeDone
from tests.unit.ha.masterlinks import link_of
from tests.unit.ha.memorylog import MemoryLog
from tests.unit.ha.slavedriver import SlaveDriver

VECTORS = Path(__file__).parents[2] / "vectors/ha"
SEGMENT_SIZE = 16384
ROWS = json.loads((VECTORS / "index-auto.json").read_text())
BY_NUMBER = {row["stream"][:7]: row for row in ROWS}
WITH_DATA = [row["stream"][:7] for row in ROWS if row["dataRange"][0] is not None]


@dataclass
class Stream:
    slave_to_master: bytes
    master_to_slave: bytes


def stream(number: str) -> Stream:
    name = BY_NUMBER[number]["stream"]
    index = json.loads((VECTORS / name.replace(".bin", ".json")).read_text())
    data = (VECTORS / name).read_bytes()
    return Stream(
        *(
            data[index[side]["offset"] : index[side]["offset"] + index[side]["length"]]
            for side in ("s2m", "m2s")
        )
    )


def stored_log(state: str) -> tuple[int, bytes]:
    """The start of the log, and its bytes up to its end; trailing zeros of full files were cut when
    captured."""
    files = sorted((VECTORS / "state-auto" / state).glob("commitlog-*.gz"))
    begins = int(files[0].name[len("commitlog-") : -len(".gz")])
    end = json.loads((VECTORS / "state-auto" / state / "info.json").read_text())
    parts = [gzip.decompress(file.read_bytes()) for file in files]
    data = b"".join(part.ljust(SEGMENT_SIZE, b"\0") for part in parts[:-1]) + parts[-1]
    size = (end.get("info") or {}).get("maxOffset")
    return begins, data if size is None else data.ljust(size - begins, b"\0")[: size - begins]


TRUTH = stored_log("12-truncated-broker1")[1]
EPOCHS = decode((VECTORS / "state-auto/12-truncated-broker1/epochFileCheckpoint").read_bytes())


def slave_before(number: str) -> SlaveDriver:
    """The slave of that link in its state at the connection."""
    row = BY_NUMBER[number]
    handshake = Handshake.decode(stream(number).slave_to_master[:16])
    if number == "auto-14":
        begins, data = stored_log("10b-diverged-old-master-down-broker2")
        epochs = decode(
            (VECTORS / "state-auto/10b-diverged-old-master-down-broker2/epochFileCheckpoint").read_bytes()
        )
        return SlaveDriver(MemoryLog(SEGMENT_SIZE, data), epochs, handshake)
    log_end = row["firstAck"] or 0
    return SlaveDriver(MemoryLog(SEGMENT_SIZE, TRUTH[:log_end]), EPOCHS.truncate_suffix(log_end), handshake)


@pytest.mark.parametrize("step", [1 << 30, 1, 7])
@pytest.mark.parametrize("number", WITH_DATA)
def test_a_slave_copies_a_java_master_byte_for_byte(number: str, step: int) -> None:
    row, slave = BY_NUMBER[number], slave_before(number)
    slave.feed(stream(number).master_to_slave, step)
    begin, end = row["dataRange"]
    assert slave.closed is None
    assert slave.log.max_offset() == end
    assert slave.log.content() == TRUTH[slave.log.min_offset() : end]
    assert slave.stored == epochs_after(number, slave)
    assert slave.sent[0] == stream(number).slave_to_master[:16]
    assert decode_ack(slave.sent[1]) == row["firstAck"]
    assert decode_ack(slave.sent[-1]) == end
    assert slave.log.confirm_offset() == end
    before = set(slave_before(number).stored)
    for history, log_end in slave.stores:
        assert all(entry.start_offset >= log_end for entry in set(history) - before)  # before its first byte
        before = set(history)


DEPOSED = {"auto-05", "auto-10"}
"""The masters of these links were already replaced and label the data they relay with their own old epoch."""


def epochs_after(number: str, slave: SlaveDriver) -> EpochHistory:
    """The epochs of the received bytes, and those that the handshake named at the log's end."""
    named = [tuple(entry) for entry in BY_NUMBER[number]["masterEpochsInHandshake"]]
    first, end = EPOCHS.entry_at(slave.log.min_offset()), slave.log.max_offset()
    return EpochHistory(
        entry
        for entry in EPOCHS
        if first <= entry and (entry.start_offset < end and number not in DEPOSED or entry in named)
    )


@pytest.mark.parametrize("step", [1 << 30, 7])
@pytest.mark.parametrize("file", sorted(VECTORS.glob("acked-*.json")) + sorted(VECTORS.glob("allack-*.json")))
def test_a_slave_copies_an_all_acks_java_master_byte_for_byte(file: Path, step: int) -> None:
    """Heartbeats, confirm offsets and epochs of clusters whose logs are not stored; zeros replace the
    logs."""
    index = json.loads(file.read_text())
    data = file.with_suffix(".bin").read_bytes()[index["m2s"]["offset"] :]
    frames = [frame for frame in index["frames"] if frame["dir"] == "m2s"]
    bodies = b"".join(
        data[f["pos"] + 36 : f["pos"] + f["length"]]
        for f in frames
        if f["kind"] not in ("handshake", "heartbeat")
    )
    begin = max(0, next(frame["offset"] for frame in frames if frame["state"] == 2))  # -1: no file yet
    epochs = EpochHistory(frames[0]["epochs"])
    slave = SlaveDriver(MemoryLog(262144, bytes(begin)), epochs.truncate_suffix(begin), Handshake(2))
    slave.feed(data, step)
    assert slave.closed is None
    assert slave.log.content()[begin:] == bodies
    assert slave.log.confirm_offset() == max(frame.get("confirmOffset", 0) for frame in frames)
    assert slave.stored.last_epoch() == frames[-1]["epoch"]


def test_a_diverged_old_master_is_truncated_to_the_end_of_the_common_epoch() -> None:
    slave = slave_before("auto-14")
    before = slave.log.max_offset()
    assert before > 52079
    slave.feed(stream("auto-14").master_to_slave)
    assert slave.log.truncated == [(before, 52079)]
    begins, data = stored_log("12-truncated-broker2")
    assert slave.log.content() == data[: 57696 - begins]
    assert slave.stored == decode(
        (VECTORS / "state-auto/12-truncated-broker2/epochFileCheckpoint").read_bytes()
    )


def test_a_clipped_batch_labelled_with_the_next_epoch_is_accepted_r20() -> None:
    slave = slave_before("auto-07").feed(stream("auto-07").master_to_slave)
    assert slave.stored.entries[:3] == ((1, 0), (2, 20315), (3, 25805))


def test_a_slave_joining_from_the_last_file_records_its_epochs() -> None:
    slave = slave_before("auto-15").feed(stream("auto-15").master_to_slave)
    assert slave.log.min_offset() == 49152
    state = VECTORS / "state-auto/13-sync-from-last-file-broker4"
    assert slave.stored == decode((state / "epochFileCheckpoint").read_bytes())


def test_a_second_handshake_reply_ends_the_connection_r39() -> None:
    log = MemoryLog(SEGMENT_SIZE, TRUTH[:36811])
    slave = SlaveDriver(log, EPOCHS.truncate_suffix(36811), Handshake(3, is_async_learner=True))
    slave.feed(stream("auto-08").master_to_slave)
    assert slave.closed is not None and "state 1" in slave.closed


@dataclass
class Master:
    """A master whose log is the captured one."""

    log_end: int
    broker_id: int = 99
    segment_size_bytes: int = SEGMENT_SIZE
    log_min: int = 0

    @property
    def history(self) -> EpochHistory:
        return EpochHistory(entry for entry in EPOCHS if entry.start_offset <= self.log_end)

    @property
    def confirm_offset(self) -> int:
        return self.log_end


@pytest.mark.parametrize("step", [12, 1, 7])
@pytest.mark.parametrize("number", [row["stream"][:7] for row in ROWS])
def test_a_master_serves_a_java_slave(number: str, step: int) -> None:
    row = BY_NUMBER[number]
    master = Master(log_end=row["dataRange"][1] or row["masterMaxInHandshake"])
    link = link_of(master, 32768)
    log, actions = bytearray(), []
    data = stream(number).slave_to_master
    for at in range(0, len(data), step):
        actions += link.receive(data[at : at + step], now_ms=0)
        while isinstance(batch := next(iter(link.writable(now_ms=0)), None), Batch):
            log += TRUTH[batch.offset : batch.offset + batch.size]
    assert not [action for action in actions if isinstance(action, Close)]
    assert [a.handshake for a in actions if isinstance(a, HandshakeDone)] == [Handshake.decode(data[:16])]
    acks = [action.offset for action in actions if isinstance(action, Acked)]
    if row["firstAck"] is not None:
        assert acks[0] == row["firstAck"] and acks[-1] == row["dataRange"][1]
        assert bytes(log) == TRUTH[row["dataRange"][0] : row["dataRange"][1]]
        assert link.caught_up_ms == 0
