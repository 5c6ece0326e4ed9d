"""Servers that cannot start with their settings: one clear line, a correct exit code, no traceback."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.serverprocess import ENVIRONMENT, ServerProcess, command
from tests.process.smalldisk import small_disk
from tests.unit.raftstore.raftstores import contents, lay_out

NOWHERE = "127.0.0.1:9"  # the discard port: nothing listens there
USAGE, FAILED = 2, 1


@contextmanager
def listener() -> Iterator[int]:
    """A port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def ends(module: str, *arguments: str) -> tuple[int, str]:
    """(exit code, stderr) of a server that exits."""
    done = subprocess.run(
        command(module, *arguments), env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    return done.returncode, said


def controller(tmp_path: Path, *arguments: str, port: int = 29_878) -> list[str]:
    return [
        "controllerDLegerGroup=g",
        f"controllerDLegerPeers=n0-127.0.0.1:{port}",
        "controllerDLegerSelfId=n0",
        f"controllerStorePath={tmp_path / 'controller'}",
        f"configStorePath={tmp_path / 'controller.properties'}",
        "mappedFileSize=1048576",
        *arguments,
    ]


def broker(tmp_path: Path, *arguments: str) -> list[str]:
    return [
        f"storePathRootDir={tmp_path / 'broker'}",
        "listenPort=0",
        f"controllerAddr={NOWHERE}",
        "mappedFileSizeCommitLog=65536",
        *arguments,
    ]


def namesrv(tmp_path: Path, *arguments: str) -> list[str]:
    return [f"kvConfigPath={tmp_path / 'namesrv' / 'kvConfig.json'}", "listenPort=0", *arguments]


def test_a_used_port_is_named_by_every_server(tmp_path: Path) -> None:
    with listener() as beside:
        pass  # by default the one above the used one, which may be used too
    with listener() as port:
        for module, arguments in (
            ("namesrv", namesrv(tmp_path, f"listenPort={port}")),
            ("controller", controller(tmp_path, port=port)),
            ("broker", broker(tmp_path, f"listenPort={port}", f"haListenPort={beside}", "fastListenPort=0")),
            ("broker", broker(tmp_path, f"haListenPort={port}")),
        ):
            code, said = ends(module, *arguments)
            assert code == FAILED
            assert f"127.0.0.1:{port}: another process listens here; stop it or set another port" in said


def test_an_address_of_another_machine_is_refused_as_a_listen_address(tmp_path: Path) -> None:
    code, said = ends("broker", *broker(tmp_path, "brokerIP1=192.0.2.1"))
    assert code == FAILED
    assert "192.0.2.1" in said and "set bindAddress to one that is" in said


def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    """A file in its path, and a file system where nobody may create a folder."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "store", Path("/sys/mq-store")):
        code, said = ends("broker", *broker(tmp_path, f"storePathRootDir={place}"))
        assert code == USAGE
        assert "cannot be used as store directory" in said and "name another one" in said


def test_a_missing_configuration_file_is_named(tmp_path: Path) -> None:
    code, said = ends("controller", "-c", str(tmp_path / "controller.conf"))
    assert (code, said) == (
        USAGE,
        f"mqcontroller: {tmp_path / 'controller.conf'}: cannot be read: No such file or directory\n",
    )


def test_a_mistyped_key_is_logged_with_the_nearest_one_and_refused_if_strict(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"# ours\nminInSyncReplica=2\ncontrollerAddr={NOWHERE}\n")
    code, said = ends("broker", "--strict", "-c", str(file))
    assert code == USAGE
    expected = f"{file}:2: minInSyncReplica=2: unknown setting; did you mean minInSyncReplicas?"
    assert said == f"mqbroker: {expected}\n"
    with listener() as port:  # the file is valid up to the port
        code, said = ends("broker", "-c", str(file), *broker(tmp_path, f"listenPort={port}"))
    assert code == FAILED
    assert "WARNING" in said and "did you mean minInSyncReplicas?" in said


@pytest.mark.parametrize(
    "module,setting,why",
    [
        ("broker", "listenPort=a lot", "should be a valid integer"),
        ("broker", "minInSyncReplicas=0", "greater than or equal to 1"),
        ("broker", "listenPort=65535", "haListenPort would be listenPort + 1 = 65536; set haListenPort"),
        (
            "broker",
            "brokerHeartbeatInterval=20000",
            "must be less than controllerHeartBeatTimeoutMills 10000",
        ),
        ("broker", "messageDelayLevel=1s 2x", "'2x' in messageDelayLevel is not a number with unit"),
        ("broker", "storePathRootDir=", "must name a file or a folder"),
        ("controller", "configStorePath=", "must name a file or a folder"),
        ("broker", "brokerIP1=localhost", "does not appear to be an IPv4 or IPv6 address"),
        ("broker", "controllerAddr=controller-1", "is not HOST:PORT"),
        ("broker", "storePathCommitLog=/data/elsewhere", "commitlog, or not be set"),
        ("broker", "brokerRole=MASTER", "Input should be 'ASYNC_MASTER', 'SYNC_MASTER' or 'SLAVE'"),
        ("controller", "controllerDLegerSelfId=n7", "is not among"),
        ("broker", "namesrvAddr=a:1,b:2", "'a:1,b:2' is not HOST:PORT (a comma where ; is due)"),
        ("broker", "namesrvAddr=http://a:1", "'http://a:1' is not HOST:PORT (without http://)"),
        ("broker", "namesrvAddr=a:1;300.0.0.1:2", "it is no IPv4 address"),
        ("broker", "haMasterAddress=a:1;b:2", "is not one HOST:PORT"),
        ("broker", "brokerIP2=10.0.0.1,10.0.0.2", "does not appear to be an IPv4 or IPv6 address"),
        ("broker", "bindAddress=http://10.0.0.1", "is no host: without http://"),
        ("namesrv", "bindAddress=10.0.0.1:9876", "is no host"),
        ("namesrv", "metricsPromExporterHost=a b", "is no host"),
        ("controller", "bindAddress=everywhere!", "is no host"),
        ("controller", "controllerDLegerPeers=n0:9878", "is not ID-HOST:PORT"),
        ("controller", "controllerDLegerPeers=n0-127.0.0.1:1,n1-127.0.0.1:2", "a comma where ; is due"),
        ("controller", "controllerDLegerPeers=n0-http://a:1", "without http://"),
        ("controller", "controllerDLegerPeers=n0-a:1;n0-b:2", "the id is given twice"),
        ("controller", "mappedFileSize=1", "greater than or equal to"),
        ("namesrv", "enableControllerInNamesrv=true", "the name server's file; name it with -c"),
    ],
)
def test_an_impossible_value_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    module: str,
    setting: str,
    why: str,
) -> None:
    """Settings are read first, so no process is needed."""
    known = {"broker": broker, "controller": controller, "namesrv": namesrv}[module](tmp_path)
    monkeypatch.setattr(sys, "argv", [f"mq{module}", *known, setting])
    assert importlib.import_module(f"{module}.__main__").main() == USAGE
    said = capsys.readouterr().err
    assert setting.partition("=")[0] in said and why in said and said.count("\n") == 1


def test_a_broker_without_controllers_is_refused_with_the_setting_to_set(tmp_path: Path) -> None:
    code, said = ends("broker", *broker(tmp_path, "controllerAddr="))
    assert code == USAGE
    assert "controllerAddr" in said and "must name controllers" in said


@pytest.mark.parametrize("mode", ["true", "false"])
def test_a_broker_refuses_the_store_of_a_raft_mode_broker(tmp_path: Path, mode: str) -> None:
    """This broker does not read that log. It would start with an empty one and truncate the queues."""
    root = lay_out("killed", tmp_path / "broker")
    before = contents(root)
    code, said = ends("broker", *broker(tmp_path, f"enableControllerMode={mode}"))
    assert code == FAILED
    assert (
        "holds dledger-n0, the log of a broker in Raft mode" in said and "python -m raftstore adopt" in said
    )
    assert {name: read for name, read in contents(root).items() if not name.endswith("/lock")} == before


def test_a_broker_refuses_the_store_of_another_broker(tmp_path: Path) -> None:
    store = tmp_path / "broker"
    store.mkdir()
    identity = store / "brokerIdentity"
    for content, why in ((b"Other#broker-a#2", "belongs to Other/broker-a"), (b"\xff", "is not text")):
        identity.write_bytes(content)
        code, said = ends("broker", *broker(tmp_path))
        assert code == FAILED
        assert why in said and "remove the whole store" in said
        assert identity.read_bytes() == content


def test_damaged_or_missing_tables_are_named_with_a_hint(tmp_path: Path) -> None:
    arguments = broker(tmp_path, "enableControllerMode=false", "brokerRole=ASYNC_MASTER")
    with ServerProcess("broker", *arguments) as first:
        first.wait_to_say("broker started")
        assert first.stop() == 0
    tables = tmp_path / "broker" / "config"
    topics = tables / "topics.json"
    before = topics.read_bytes()
    topics.write_bytes(b"")
    code, said = ends("broker", *arguments)
    assert code == USAGE
    line = "fatal: config/topics.json: the file is empty; restore it from another replica of this broker, or write {} into it"
    assert said.splitlines()[-1].endswith(f"{line} to start empty")
    assert topics.read_bytes() == b""
    topics.write_bytes(before)
    tables.rename(tmp_path / "lost")
    code, said = ends("broker", *arguments)
    assert code == USAGE
    line = "fatal: config: all tables are missing, and the checkpoint says that there were some; restore it from another"
    assert said.splitlines()[-1].endswith(
        f"{line} replica of this broker, or write {{}} into config/topics.json to start empty"
    )
    assert not tables.exists()
    tables.mkdir()
    topics.write_bytes(b"{}")
    with ServerProcess("broker", *arguments) as again:
        again.wait_to_say("broker started")
        assert again.stop() == 0


def test_a_second_process_is_refused_a_store_and_the_first_stops_on_sigterm(
    tmp_path: Path,
) -> None:
    """The first one waits for its controllers, logs that once, and still stops on SIGTERM."""
    arguments = broker(tmp_path, f"namesrvAddr={NOWHERE}")
    with ServerProcess("broker", *arguments) as first:
        first.wait_to_say("retrying")
        code, second = ends("broker", *arguments)
        assert code == USAGE
        assert "holds this store" in second and str(tmp_path / "broker") in second
        assert first.stop() == 0
    assert "Traceback" not in first.said
    assert first.said.count("a majority of controllers must run at the addresses of controllerAddr") == 1


def test_a_controller_without_peers_reports_it_and_stops_on_sigterm(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    peers = f"controllerDLegerPeers=n0-127.0.0.1:{port};n1-{NOWHERE};n2-127.0.0.1:7"
    with ServerProcess("controller", *controller(tmp_path, peers)) as lone:
        lone.wait_to_say("no controller leads")
        assert lone.stop() == 0
    assert "a majority of the peers must run" in lone.said and len(lone.said.splitlines()) <= 6


def test_a_controller_on_a_full_disk_waits_with_a_hint_until_sigterm(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "full", 64 << 10) as disk:
        where = f"controllerStorePath={disk / 'store'}"
        with ServerProcess("controller", *controller(tmp_path, where)) as waiting:
            waiting.wait_to_say("make room")
            assert waiting.stop() == 0
    assert "No space left on device" in waiting.said and "retrying" in waiting.said
