"""mqreplay scan: each record of the range is counted under one kind."""

from __future__ import annotations

from pathlib import Path

from tests.unit.sparkreplay.commandline import log_options, mqreplay, two_days
from tests.unit.sparkreplay.storefolder import StoreFolder


def test_each_queue_is_counted_with_its_offsets_and_times(tmp_path: Path) -> None:
    path = two_days(tmp_path).write()
    done = mqreplay("scan", *log_options(path))
    assert done.code == 0, done.err
    assert done.json["records"]["message"] == 400
    assert done.json["stores"][0]["bound_source"] == "checkpoint"
    orders = [queue for queue in done.json["queues"] if queue["topic"] == "orders"]
    assert [(queue["queue_id"], queue["rows"], queue["first_offset"]) for queue in orders] == [
        (0, 45, 0), (1, 45, 0), (2, 44, 0),
    ]  # fmt: skip
    assert orders[0]["first_stored"] == "2023-11-15T12:00:00.000Z"


def test_records_that_a_read_leaves_out_are_counted_by_their_rule(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    for topic, sys_flag in (
        ("orders", 0), ("orders", 8), ("RMQ_SYS_TRANS_HALF_TOPIC", 0), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0),
        ("SCHEDULE_TOPIC_XXXX", 0), ("rmq_sys_TRACE_DATA", 0), ("open", 4), ("dropped", 12),
    ):  # fmt: skip
        store.add(topic=topic, sys_flag=sys_flag)
    done = mqreplay("scan", *log_options(store.write()))
    assert done.code == 0, done.err
    assert done.json["records"] == {
        "message": 2, "prepared": 1, "rollback": 1, "half": 1, "half-op": 1, "delayed": 1, "system": 1,
    }  # fmt: skip
    shown = mqreplay("scan", str(tmp_path), "--workers", "1").out
    assert "8 records" in shown and "a read gives 2 of them and leaves out 1 prepared, 1 rollback" in shown


def test_a_missing_queue_offset_is_reported_and_sets_the_exit_code(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add(topic="orders", queue_id=2)
    store.next_queue_offset["orders", 2] = 5
    store.add(topic="orders", queue_id=2)
    done = mqreplay("scan", *log_options(store.write()))
    assert done.code == 1
    assert "queue orders/2 of broker-a holds 2 records for the 6 offsets 0 to 5" in done.err
    assert done.json["gaps"][0]["rows"] == 2


def test_several_processes_find_the_same_as_one(tmp_path: Path) -> None:
    path = two_days(tmp_path).write()
    alone = mqreplay("scan", path, "--split", "8k", "--workers", "1", "--json")
    both = mqreplay("scan", path, "--split", "8k", "--workers", "2", "--json")
    assert both.code == 0 and both.json == alone.json


def test_damage_found_by_a_worker_process_is_one_line(tmp_path: Path) -> None:
    store = two_days(tmp_path)
    path = store.write()
    segment = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[store.ends[3] + 4] ^= 0xFF
    segment.write_bytes(data)
    done = mqreplay("scan", path, "--split", "1m", "--workers", "2", "--quiet")
    assert done.code == 1 and done.out == ""
    assert str(store.ends[3]) in done.err and "Traceback" not in done.err


def test_an_empty_committed_part_of_a_log_with_records_is_reported(tmp_path: Path) -> None:
    store = two_days(tmp_path)
    path = store.write(confirm=0)
    done = mqreplay("scan", path)
    assert done.code == 1 and "0 records" in done.out
    assert (
        f"records of at least {len(store.log)} bytes, [0, {len(store.log)}), lie above the committed"
        in done.err
    )
    (above,) = mqreplay("scan", path, "--json").json["above_bound"]
    assert (above["start"], above["end"], above["nothing_committed"]) == (0, len(store.log), True)
    done = mqreplay("scan", StoreFolder(tmp_path / "empty").write(), "--json")
    assert (done.code, done.json["above_bound"]) == (0, [])


def test_user_errors_are_one_line_with_a_hint(tmp_path: Path) -> None:
    path = two_days(tmp_path).write()
    for arguments, code, reason in (
        (["scan", str(tmp_path / "nowhere")], 1, "storePathRootDir"),
        (["scan", path, "-o", "colums=full"], 2, "columns"),
        (["scan", path, "-o", "columns=meta"], 2, "not for this command"),
        (["scan", path, "-o", "queues"], 2, "NAME=VALUE"),
        (["scan"], 2, "STORE"),
        (["scna", path], 2, "scna"),
    ):
        done = mqreplay(*arguments)
        assert done.code == code and reason in done.err, done
        assert "Traceback" not in done.err


def test_a_scan_accepts_times_beyond_the_calendar(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path / "store")
    for stored_ms in (-(1 << 62), 1 << 62, 1 << 50, 0):
        store.add(stored_ms=stored_ms)
    path = store.write()
    assert mqreplay("scan", *log_options(path)).json["records"]["message"] == 4
    assert "leaves" not in mqreplay("scan", path, "--workers", "1").out
    hours = {row["hour"]: row["count"] for row in mqreplay("stats", *log_options(path)).json["hours"]}
    assert hours["(no time)"] == 2 and hours["1970-01-01T00:00"] == 1
    target = tmp_path / "parquet"
    assert mqreplay("export", *log_options(path), "--to", str(target)).json["rows"] == 4
    assert (target / "topic=orders" / "day=__HIVE_DEFAULT_PARTITION__").is_dir()


def test_a_batch_queue_reports_no_gaps(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    for offset in (0, 10, 20):
        store.next_queue_offset["orders", 0] = offset
        store.add(sys_flag=0x80)
    done = mqreplay("scan", *log_options(store.write()))
    assert (done.code, done.json["gaps"]) == (0, [])
    assert mqreplay("verify", str(tmp_path), "--workers", "1").code == 0
