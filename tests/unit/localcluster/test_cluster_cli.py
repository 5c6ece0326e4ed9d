"""`scripts/cluster` and `scripts/drill` as commands: arguments, and one line for each error."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localcluster.cli import cluster
from localcluster.cluster import Cluster
from localcluster.drillcli import drill
from localcluster.status import StatusRow, format_rows


@pytest.fixture(autouse=True)
def own_lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(cluster, [str(arg) for arg in args])


@pytest.mark.parametrize("command", ["status", "kill", "stop", "start", "restart", "logs", "down"])
def test_without_a_cluster_every_command_says_how_to_create_one(command: str, tmp_path: Path) -> None:
    result = run(command, "--dir", tmp_path / "none", "broker-0")
    assert result.exit_code == 1
    assert "scripts/cluster up" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_or_file_that_cannot_be_created_is_named_before_any_start(tmp_path: Path) -> None:
    for result, place in (
        (run("up", "--dir", "/proc/cluster"), "/proc/cluster"),
        (CliRunner().invoke(drill, ["kill", "--json", str(tmp_path / "no" / "report")]), "no/report"),
    ):
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
        assert place in result.output and "name another one" in result.output


def test_an_unknown_process_is_named_together_with_the_known_ones(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "c", controllers=1, brokers=1):
        result = run("kill", "--dir", tmp_path / "c", "broker-7")
        assert result.exit_code == 1
        assert "broker-7" in result.stderr
        assert "namesrv, controller-0, broker-0" in result.stderr


def test_the_directory_option_may_precede_the_process_name(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "c", controllers=1, brokers=1) as made:
        result = run("kill", made.directory, "broker-0", "--sig", "15")
        assert (result.exit_code, result.stdout) == (0, "none of them was running\n")
        assert run("logs", made.directory, "broker-0").stdout.endswith("(no log)\n")
        assert run("kill", made.directory).exit_code == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--opt", "novalue"], "'novalue' is not KEY=VALUE"),
        (["--base-port", "65530"], "base port 65530"),
        (["--base-port", "80"], "base port 80"),
    ],
)
def test_up_refuses_invalid_options(options: list[str], said: str, tmp_path: Path) -> None:
    result = run("up", "--dir", tmp_path / "c", *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert not (tmp_path / "c" / "env.json").exists()


def test_damaged_process_records_are_named_and_no_process_is_signalled(tmp_path: Path) -> None:
    made = Cluster.create(tmp_path / "c", controllers=1, brokers=1)
    (made.directory / "processes.json").write_text('{"broker-0": {"pid": 1}}')
    result = run("stop", "--dir", made.directory)
    assert result.exit_code == 1
    assert "processes.json is damaged" in result.stderr
    (made.directory / "processes.json").unlink()
    made.down()


def test_down_removes_the_directory_only_with_the_option(tmp_path: Path) -> None:
    Cluster.create(tmp_path / "c", controllers=1, brokers=1).down()
    assert "keeps its data" in run("down", "--dir", tmp_path / "c").stdout
    assert (tmp_path / "c").exists()
    assert run("down", "--dir", tmp_path / "c", "--remove").exit_code == 0
    assert not (tmp_path / "c").exists()


def test_a_status_table_is_aligned() -> None:
    rows = [
        StatusRow("namesrv", "127.0.0.1:1", 12, "running", "", ""),
        StatusRow("broker-0", "127.0.0.1:10911", None, "down", "master", "id 1"),
    ]
    assert format_rows(rows) == (
        "NAME      PROCESS  PID  ADDRESS          ROLE    DETAIL\n"
        "namesrv   running  12   127.0.0.1:1\n"
        "broker-0  down     -    127.0.0.1:10911  master  id 1\n"
    )


def test_a_drill_needs_a_kind_and_a_cluster(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(drill, ["explode"]).exit_code == 2
    result = runner.invoke(drill, ["kill", "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "no cluster in" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "what"), [("--dir", ".", "leave --dir out"), ("--brokers", "1", "two brokers")]
)
def test_a_partition_drill_needs_its_own_cluster_with_several_processes(
    option: str, value: str, what: str, tmp_path: Path
) -> None:
    with Cluster.create(tmp_path / "cluster"):
        place = str(tmp_path / "cluster") if option == "--dir" else value
        result = CliRunner().invoke(drill, ["partition", option, place])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert what in result.output
