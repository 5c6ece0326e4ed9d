from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mqruntime.serve import explain, is_bug
from mqruntime.storelock import RealStoreLock, StoreUnusable

HERE = Path(__file__).parent
COMMAND = [sys.executable, str(HERE / "demoserver.py")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}


def demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )


def running(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    return process


def test_a_server_runs_until_sigterm(tmp_path: Path) -> None:
    process = running(tmp_path)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0
    assert "INFO mqruntime.serve stopping on SIGTERM" in said
    assert said.endswith("INFO mqruntime.serve stopped\n")
    assert (tmp_path / "store" / "stopped").read_bytes() == b"yes"


def test_an_app_that_asks_for_a_restart_is_stopped_and_created_again(tmp_path: Path) -> None:
    process = running(tmp_path, "mode=restarts")
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0 and said.count("starting again") == 1
    assert (tmp_path / "store" / "stopped").read_bytes() == b"yes"


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_stops_the_server_unless_sighup_is_ignored(tmp_path: Path, ignored: bool) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        process = running(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, former)
    process.send_signal(signal.SIGHUP)
    if ignored:
        process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0
    assert f"stopping on {'SIGTERM' if ignored else 'SIGHUP'}" in said


def test_a_second_signal_ends_a_hanging_stop(tmp_path: Path) -> None:
    process = running(tmp_path, "mode=stuck")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "INFO mqruntime.serve stopped" not in said


def test_one_store_has_one_process(tmp_path: Path) -> None:
    lock = RealStoreLock(tmp_path / "store")
    lock.acquire()
    try:
        refused = demo(tmp_path)
        assert refused.returncode == 2
        assert f"store/lock: another process (pid {os.getpid()}) holds this store; stop it" in refused.stderr
        assert refused.stderr.count("\n") == 1
    finally:
        lock.release()
        lock.release()


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("typed", "fatal: port 1 is taken; choose another listenPort\n"),
        ("unmakable", "fatal: peers of controllerDLegerPeers are not id-host:port\n"),
        (
            "fatal",
            "fatal: Input/output error (commitlog/0): the disk fails; replace it, and let the other members fill a new store\n",
        ),
    ],
)
def test_a_fatal_error_is_one_line_and_an_exit_code(tmp_path: Path, mode: str, line: str) -> None:
    failed = demo(tmp_path, f"mode={mode}")
    assert failed.returncode == 1
    assert failed.stderr.endswith(line) and failed.stderr.count("\n") == 1
    assert not (tmp_path / "store" / "stopped").exists()


def test_a_damaged_file_is_one_line_and_exit_code_2_so_that_no_restart_is_tried(tmp_path: Path) -> None:
    """deploy/systemd restarts a server after any other failure."""
    refused = demo(tmp_path, "mode=damaged")
    assert refused.returncode == 2
    assert refused.stderr.endswith("fatal: table.json: the file is empty; restore it from another replica\n")
    assert refused.stderr.count("\n") == 1


def test_a_failed_stop_is_logged_and_exits_with_1(tmp_path: Path) -> None:
    process = running(tmp_path, "mode=unstoppable")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 1
    assert said.endswith("fatal: the log cannot be flushed\n")


def test_a_bug_shows_its_traceback_on_its_one_line(tmp_path: Path) -> None:
    failed = demo(tmp_path, "mode=bug")
    assert failed.returncode == 1
    assert "fatal: KeyError: 'bug'" in failed.stderr and "Traceback" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_option_p_prints_the_effective_settings(tmp_path: Path) -> None:
    (tmp_path / "demo.conf").write_text("mode = a\nstorePathRootDir=/data\n")
    printed = demo(tmp_path, "-c", "demo.conf", "mode=b", "-p")
    assert (printed.returncode, printed.stdout) == (0, "mode=b\nstorePathRootDir=/data\n")
    assert printed.stderr == ""


def test_option_p_prints_the_warnings_about_settings(tmp_path: Path) -> None:
    printed = demo(tmp_path, "mood=b", "-p")
    assert printed.returncode == 0
    assert printed.stderr == "mqdemo: command line: mood: unknown setting; did you mean mode?\n"


def test_option_n_overrides_the_name_servers_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("namesrvAddr=10.0.0.1:9876\n")
    command = [
        sys.executable,
        "-m",
        "broker",
        "-c",
        str(tmp_path / "broker.conf"),
        "-p",
        "-n",
        "10.0.0.2:9876",
    ]
    printed = subprocess.run(command, cwd=HERE.parents[2], capture_output=True, text=True, check=True)
    assert "namesrvAddr=10.0.0.2:9876" in printed.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-c", "absent.conf"], "mqdemo: absent.conf: cannot be read: No such file or directory\n"),
        (["mode"], "mqdemo: command line: 'mode' is not KEY=VALUE\n"),
        (
            ["mood=x", "--strict"],
            "mqdemo: command line: mood=x: unknown setting; did you mean mode?\n",
        ),
        (["--wrong"], "mqdemo: unrecognized arguments: --wrong; mqdemo -h lists the options\n"),
    ],
)
def test_a_user_error_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], line: str) -> None:
    refused = demo(tmp_path, *arguments)
    assert (refused.returncode, refused.stderr) == (2, line)


def test_an_unknown_setting_is_a_warning_in_the_log(tmp_path: Path) -> None:
    process = running(tmp_path, "mood=x")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert "WARNING mqruntime.serve command line: mood: unknown setting; did you mean mode?" in said


def test_help_and_version_are_printed(tmp_path: Path) -> None:
    assert "KEY=VALUE" in demo(tmp_path, "-h").stdout
    assert demo(tmp_path, "--version").stdout.startswith("mqdemo ")


def test_importing_a_module_loads_no_other_heavy_one() -> None:
    code = (
        "import sys, importlib\n"
        "importlib.import_module(sys.argv[1])\n"
        "print(*sorted({'pydantic', 'uvloop', 'aiofiles', 'asyncio', 'mmap', 'orjson'} & set(sys.modules)))"
    )
    loaded = {
        name: subprocess.run(
            [sys.executable, "-c", code, f"mqruntime.{name}"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for name in ("clock", "runtime", "properties", "settings", "serve")
    }
    assert loaded["clock"] == loaded["runtime"] == loaded["properties"] == []
    assert "asyncio" not in loaded["settings"] and "uvloop" not in loaded["settings"]
    assert loaded["serve"] == ["asyncio"]


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "make room on its disk"),
        (errno.EROFS, "mount it writable"),
        (errno.EIO, "replace the disk, which fails"),
        (errno.EACCES, "give this user the right to write there"),
    ],
)
def test_an_unusable_store_directory_is_reported_with_a_hint(number: int, cure: str) -> None:
    error = OSError(number, os.strerror(number), "store/lock")
    assert str(StoreUnusable(Path("store"), error)).endswith(f"name another one, or {cure}")


@pytest.mark.parametrize("number", [errno.EISDIR, errno.ENOTDIR])
def test_a_file_of_the_wrong_kind_is_reported_with_a_hint(number: int) -> None:
    explained = explain(OSError(number, os.strerror(number), "store/checkpoint"))
    assert explained.startswith(f"{os.strerror(number)} (store/checkpoint): ") and "move it away" in explained


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_limit_of_memory_or_threads_is_not_reported_as_a_bug(error: Exception) -> None:
    assert "ulimit -v" in explain(error)
    assert not is_bug(error)
    assert is_bug(RuntimeError("another"))
