"""Ports and processes of a local cluster, with stand-ins for the servers."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from localcluster import ports, processes
from localcluster.cluster import Cluster, ClusterError, ProcessDied, run
from localcluster.processes import ProcessIdentity, ProcessRecord, ProcessTable, spawn


@pytest.fixture(autouse=True)
def own_lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_process_is_started_watched_and_reaped(tmp_path: Path) -> None:
    identity = spawn("this", [], tmp_path / "logs" / "zen.log")
    assert identity.wait_gone(20)
    assert identity.state() is None
    assert not identity.send(signal.SIGTERM)
    assert "Namespaces" in (tmp_path / "logs" / "zen.log").read_text()


def test_a_process_is_stopped_continued_and_killed(tmp_path: Path) -> None:
    identity = spawn("http.server", ["0", "--bind", "127.0.0.1"], tmp_path / "logs" / "http.log")
    try:
        assert identity.state() is not None
        assert not identity.wait_gone(0.01)
        assert identity.send(signal.SIGSTOP)
        assert identity.send(signal.SIGCONT)
    finally:
        assert identity.send(signal.SIGKILL)
    assert identity.wait_gone(20)


def test_a_process_with_threads_after_its_main_thread_is_not_gone(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    identity = spawn(
        "tests.unit.localcluster.threadoutlivesmain", [str(port_file)], tmp_path / "logs" / "out.log"
    )
    stat = Path(f"/proc/{identity.pid}/stat")
    while not (
        port_file.exists() and port_file.read_text() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    ):
        assert identity.state() is not None
    assert identity.state() == "Z"
    assert not identity.wait_gone(0.01)
    assert identity.send(signal.SIGKILL) and identity.wait_gone(20)
    assert identity.state() is None
    with socket.socket() as again:
        again.bind(("127.0.0.1", int(port_file.read_text())))


def test_a_reused_pid_is_never_signalled(tmp_path: Path) -> None:
    identity = spawn("http.server", ["0", "--bind", "127.0.0.1"], tmp_path / "logs" / "http.log")
    try:
        another = ProcessIdentity(identity.pid, identity.start_ticks + 1, identity.boot_id)
        earlier_boot = ProcessIdentity(identity.pid, identity.start_ticks, "another boot")
        assert not another.send(signal.SIGKILL)
        assert not earlier_boot.send(signal.SIGKILL)
        assert identity.state() is not None
    finally:
        identity.send(signal.SIGKILL)
        identity.wait_gone(20)


def test_process_records_list_live_processes_for_tools_and_all_for_us(tmp_path: Path) -> None:
    table = ProcessTable(tmp_path)
    assert table.read() == {}
    gone = spawn("this", [], tmp_path / "logs" / "zen.log")
    gone.wait_gone(20)
    with table.changing() as rows:
        rows["broker-0"] = ProcessRecord(gone)
    assert table.read() == {"broker-0": ProcessRecord(gone)}
    assert json.loads((tmp_path / "pids.json").read_text()) == {}


def test_two_clusters_get_separate_ports_and_released_leases_are_free(tmp_path: Path) -> None:
    one = ports.lease_any(tmp_path / "one", 16)
    two = ports.lease_any(tmp_path / "two", 16)
    assert not set(one.ports) & set(two.ports)
    with pytest.raises(ports.PortsTaken, match="one"):
        ports.lease(tmp_path / "two", one.ports)
    one.release()
    again = ports.lease(tmp_path / "two", one.ports)
    again.release()
    two.release()


def test_a_cluster_may_lease_its_own_ports_again(tmp_path: Path) -> None:
    first = ports.lease_any(tmp_path, 90)
    second = ports.lease(tmp_path, first.ports)
    first.release()
    with pytest.raises(ports.PortsTaken):
        ports.lease(tmp_path / "other", second.ports)
    second.release()


def test_a_port_in_use_is_not_leased(tmp_path: Path) -> None:
    lease = ports.lease_any(tmp_path, 16)
    with socket.create_server(("127.0.0.1", lease.ports.start + 3)):
        with pytest.raises(ports.PortsTaken, match=f"port {lease.ports.start + 3}"):
            ports.lease(tmp_path, lease.ports)
        ports.lease(tmp_path, lease.ports, in_use=frozenset({lease.ports.start + 3})).release()
    lease.release()


def test_a_cluster_is_created_once_in_an_empty_directory(tmp_path: Path) -> None:
    home = tmp_path / "a cluster"
    with Cluster.create(home, controllers=1, brokers=2) as cluster:
        assert sorted(path.name for path in home.glob("*.conf")) == [
            "broker-0.conf",
            "broker-1.conf",
            "controller-0.conf",
            "namesrv.conf",
        ]
        assert Cluster.open(home).layout == cluster.layout
        assert cluster.states() == dict.fromkeys(cluster.layout.names)
        with pytest.raises(ClusterError, match="holds a cluster already"):
            Cluster.create(home)
    with pytest.raises(ClusterError, match="no cluster"):
        Cluster.open(tmp_path / "elsewhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ClusterError, match="not empty"):
        Cluster.create(tmp_path / "full")


def test_a_process_that_exits_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "c", controllers=1, brokers=1) as cluster:
        (cluster.directory / "namesrv.conf").write_text("listenPort=none\n")
        assert cluster.start(["namesrv"]) == ["namesrv"]
        assert ProcessTable(cluster.directory).read()["namesrv"].identity.wait_gone(30)
        with pytest.raises(ProcessDied, match=r"namesrv has ended.*\n.*listenPort"):
            cluster.check_alive()
        cluster.kill(["namesrv"])
        cluster.check_alive()  # now it was stopped on purpose
        Cluster.open(cluster.directory).check_alive()


def test_removing_a_cluster_removes_its_directory(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path / "c", controllers=1, brokers=1)
    cluster.down(remove=True)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("at", ["processes.json", "pids.json"])
def test_an_interrupt_while_records_are_written_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The processes run, and `start` has not returned yet."""
    write, interrupted = processes._replace, []

    def interrupted_once(path: Path, value: object) -> None:
        if path.name == at and not interrupted:
            interrupted.append(path)
            signal.raise_signal(signal.SIGINT)
        write(path, value)

    monkeypatch.setattr(processes, "_replace", interrupted_once)
    started: list[ProcessIdentity] = []

    def noted(module: str, arguments: list[str], log: Path) -> ProcessIdentity:
        started.append(spawn("http.server", ["0", "--bind", "127.0.0.1"], log))
        return started[-1]

    monkeypatch.setattr("localcluster.cluster.spawn", noted)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(Cluster.create(tmp_path / "cut short", controllers=1, brokers=1))
        assert [identity.state() for identity in started] == [None, None, None]
    finally:
        for identity in started:
            identity.send(signal.SIGKILL)
            identity.wait_gone(20)


def test_an_interrupt_between_a_start_and_its_record_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ProcessIdentity] = []

    def interrupted(module: str, arguments: list[str], log: Path) -> ProcessIdentity:
        started.append(spawn("http.server", ["0", "--bind", "127.0.0.1"], log))
        signal.raise_signal(signal.SIGINT)
        return started[-1]

    monkeypatch.setattr("localcluster.cluster.spawn", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(Cluster.create(tmp_path / "cut short", controllers=1, brokers=1))
        assert [identity.state() for identity in started] == [None]
    finally:
        for identity in started:
            identity.send(signal.SIGKILL)
            identity.wait_gone(20)
