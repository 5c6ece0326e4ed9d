"""Errors of mqreplay: the exit code, one line on stderr, and with --json one object on stdout."""

from __future__ import annotations

import builtins
import errno
import json
import os
from pathlib import Path

import pytest

from tests.unit.sparkreplay.commandline import mqreplay, two_days
from tests.unit.sparkreplay.storefolder import StoreFolder

RESEND = ("resend", "STORE", "--topic", "orders", "--to", "C/copy", "-n", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("scan", "STORE", "--start", "abc"), "option startingOffsets"),
        (("scan", "STORE", "-o", "colums=topic"), "did you mean columns?"),
        (("scan", "STORE", "-o", "maxBytesPerTrigger=1m"), "maxBytesPerTrigger: is for streams"),
        (("scan", "STORE", "--master", "local[4]"), "--master: is for --engine spark"),
        (("scan", "STORE", "--engine", "spark", "--workers", "2"), "--workers: is for --engine local"),
        (("scan", ""), "option STORE: is empty"),
        (("scan",), "Missing argument 'STORE...'"),
        (("export", "STORE"), "Missing option '--to'"),
        (("export", "STORE", "--to", "s3://bucket/x"), "s3://bucket/x is a URI"),
        (("export", "STORE", "--to", ""), "option --to: is empty"),
        (("export", "STORE", "--to", "new", "-o", "colums=topic"), "did you mean columns?"),
        (("export", "STORE", "--to", "new", "--start", "5"), "no record begins at 5"),
        (("stats", "STORE", "--html", "nowhere/page.html"), "nowhere, which is no folder"),
        (("stats", "STORE", "--html", "file:///page.html"), "is a URI"),
        (("verify", "STORE", "STORE/../store"), "named twice"),
        (("verify", "STORE", "--compare-only"), "no two stores of one broker set"),
        (("package", "--to", "s3://bucket/x.zip"), "is a URI"),
        (("package", "--to", "reader.tar"), "does not end in .zip"),
        (("package", "--to", "nowhere/reader.zip"), "nowhere, which is no folder"),
        ((*RESEND, "--ledger", "nowhere/ledger"), "nowhere, which is no folder"),
        ((*RESEND, "--ledger", "."), "is a folder"),
        ((*RESEND, "--patience", "nan"), "'nan' is not a valid integer"),
        ((*RESEND, "--ledger", "s3://bucket/ledger"), "is a URI"),
        ((*RESEND, "-o", "transactions=all"), "transactions is not for this command"),
        ((*RESEND, "-o", "decompress=true"), "decompress is not for this command"),
    ],
)
def test_a_command_line_error_is_exit_code_2_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], reason: str
) -> None:
    store = two_days(tmp_path / "store", 10).write()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    done = mqreplay(*(argument.replace("STORE", store) for argument in arguments))
    assert (done.code, done.out) == (2, "") and reason in done.err and "Traceback" not in done.err
    as_json = mqreplay(*(argument.replace("STORE", store) for argument in arguments), "--json")
    assert as_json.code == 2 and reason in as_json.json["error"]
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("command", [("stats", "STORE", "--html"), (*RESEND, "--ledger")])
def test_a_target_that_is_no_regular_file_is_not_replaced(tmp_path: Path, command: tuple[str, ...]) -> None:
    store, pipe = two_days(tmp_path / "store", 10).write(), tmp_path / "pipe"
    os.mkfifo(pipe)
    done = mqreplay(*(argument.replace("STORE", store) for argument in command), str(pipe))
    assert (done.code, pipe.is_fifo()) == (2, True) and f"{pipe} is no plain file" in done.err


def test_a_page_is_written_through_a_symbolic_link(tmp_path: Path) -> None:
    link, page = tmp_path / "link.html", tmp_path / "pages" / "page.html"
    page.parent.mkdir()
    link.symlink_to(page)
    done = mqreplay("stats", two_days(tmp_path / "store", 10).write(), "--html", str(link))
    assert done.code == 0 and link.is_symlink() and page.is_file()
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize("command", ["scan", "stats", "verify"])
def test_names_in_a_log_do_nothing_to_a_terminal(tmp_path: Path, command: str) -> None:
    store = StoreFolder(tmp_path)
    store.add(topic="a\x1b[31mb\nzz", properties="PGROUP\x01p\rq\x02")
    store.next_queue_offset["a\x1b[31mb\nzz", 0] = 5  # a gap, which is reported with the name
    store.add(topic="a\x1b[31mb\nzz")
    done = mqreplay(command, store.write())
    printed = done.out + done.err
    assert all(letter.isprintable() for letter in printed.replace("\n", ""))
    assert r"a\x1b[31mb\nzz" in printed


def test_a_failure_is_exit_code_1_with_its_kind(tmp_path: Path) -> None:
    done = mqreplay("scan", str(tmp_path / "nowhere"), "--json")
    assert done.code == 1 and done.json["kind"] == "StoreUnreadable" and "is no folder" in done.json["error"]
    assert done.json["error"] in done.err


def test_an_interrupt_is_exit_code_130_and_an_object_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparkreplay.commands.scan.planned", interrupted)
    done = mqreplay("scan", two_days(tmp_path, 10).write(), "--json")
    assert done.code == 130 and done.json == {"error": "interrupted", "kind": "Interrupted"}


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "make room and run the same command again"),
        (errno.EACCES, "run as a user who may, or name another place"),
        (errno.EROFS, "name another place"),
    ],
)
def test_an_os_error_is_reported_with_its_file_and_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
) -> None:
    def refused(target: str) -> None:
        raise OSError(number, "is not allowed here", target)

    monkeypatch.setattr("sparkreplay.commands.package.write_package", refused)
    done = mqreplay("package", "--to", str(tmp_path / "reader.zip"), "--json")
    assert (done.code, done.json["error"]) == (
        1,
        f"{tmp_path}/reader.zip: is not allowed here; {cure}",
    )


def test_a_bound_other_than_the_committed_one_is_not_reported_as_committed(tmp_path: Path) -> None:
    store = two_days(tmp_path, 50)
    path = store.write(confirm=store.ends[29])
    given = mqreplay("scan", path, "--end", str(store.ends[9]))
    assert f"bound      {store.ends[9]}, given with --end" in given.out
    assert f"committed up to {store.ends[29]}, according to: checkpoint" in given.out
    latest = mqreplay("scan", path, "--end", "latest", "-o", "allowUncommitted=true")
    assert f"bound      {store.ends[49]}, the end of the log" in latest.out
    assert f"committed up to {store.ends[29]}, according to: checkpoint" in latest.out
    report = json.loads(
        mqreplay("scan", path, "--end", "latest", "-o", "allowUncommitted=true", "--json").out
    )["stores"][0]
    assert (report["committed_bound"], report["bound"]) == (store.ends[29], store.ends[49])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_full_disk_is_reported_with_the_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.open
    monkeypatch.setattr(
        "builtins.open", lambda path, *more: real("/dev/full" if "unfinished" in str(path) else path, *more)
    )
    page = tmp_path / "page.html"
    done = mqreplay("stats", two_days(tmp_path / "store", 10).write(), "--html", str(page), "--json")
    error = f"{page}: No space left on device; make room and run the same command again"
    assert (done.code, done.json["error"]) == (1, error) and not page.exists()


def test_missing_spark_is_reported_before_an_export_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkreplay.commands.shared.missing_for_spark", lambda: "no Java is found")
    path = two_days(tmp_path / "store", 10).write()
    done = mqreplay("export", path, "--to", str(tmp_path / "lake"), "--engine", "spark", "--json")
    assert (done.code, done.json["error"]) == (
        1,
        "Spark cannot run: no Java is found; or use --engine local",
    )
    assert not (tmp_path / "lake").exists()


def test_a_spark_start_failure_is_reported_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exits(*arguments: object) -> None:
        raise RuntimeError(
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
        )

    monkeypatch.setattr("sparkreplay.commands.shared.missing_for_spark", lambda: None)
    monkeypatch.setattr("sparkreplay.commands.shared.SparkEngine", exits)
    path = two_days(tmp_path / "store", 10).write()
    done = mqreplay("scan", path, "--engine", "spark", "--master", "local[4]", "--json")
    assert (done.code, done.json["kind"]) == (1, "EngineFailed")
    assert "Java gateway process exited" in done.err and "check --master local[4] and Java" in done.err


def test_an_unknown_topic_is_reported_by_each_command(tmp_path: Path) -> None:
    path = two_days(tmp_path / "store", 10).write()
    for command in (["scan", path], ["export", path, "--to", str(tmp_path / "lake")], ["stats", path]):
        done = mqreplay(*command, "--topic", "orders,ordres", "--json")
        assert (done.code, done.json["kind"]) == (1, "TopicMissing") and "topic ordres is unknown" in done.err
        assert "Traceback" not in done.err and "failOnMissingTopic=false" in done.err
    assert not (tmp_path / "lake").exists()
    done = mqreplay("scan", path, "--topic", "orders,ordres", "-o", "failOnMissingTopic=false")
    assert done.code == 0 and "no record of topic ordres was found\n" in done.err
    assert mqreplay("scan", path).err == ""
