"""The archive for executors: it is enough, it is light, and it is the same each time."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pyarrow
import pytest

from sparkreplay.engine.package import packaged_files
from tests.unit.sparkreplay.commandline import mqreplay, two_days

UNWANTED = (
    "asyncio",
    "uvloop",
    "pydantic",
    "orjson",
    "click",
    "rich",
    "aiofiles",
    "pyspark",
    "pandas",
    "remoting",
)
READ = """
import sys
sys.path[:0] = {paths!r}
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
import sparkreplay.export.job, sparkreplay.summary.scan, sparkreplay.summary.stats
import sparkreplay.check.verify, sparkreplay.check.compare
import messagestore.walker, epochfile.format
assert sparkreplay.__file__.startswith({archive!r})
rows = sum(batch.num_rows for batch in read_all(plan_read(read_options({{"path": {store!r}}}))))
print(rows, *sorted(set(sys.modules) & set({unwanted!r})))
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder that holds numpy and pyarrow and nothing else."""
    folder = tmp_path / "site"
    folder.mkdir()
    for package in (numpy, pyarrow):
        place = Path(package.__path__[0])
        for part in (place, place.with_name(f"{place.name}.libs")):
            if part.exists():
                (folder / part.name).symlink_to(part)
    return folder


def test_a_process_with_numpy_and_pyarrow_alone_reads_a_store_from_the_archive(
    tmp_path: Path, bare: Path
) -> None:
    store = two_days(tmp_path / "store").write()
    archive = str(tmp_path / "reader.zip")
    done = mqreplay("package", "--to", archive, "--json")
    assert done.code == 0 and done.json["archive"] == archive
    code = READ.format(paths=[archive, str(bare)], archive=archive, store=store, unwanted=UNWANTED)
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd="/", capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["400"], "and none of the unwanted modules"


def test_the_archive_holds_the_reader_and_no_command_or_server() -> None:
    names = set(packaged_files())
    assert {
        "sparkreplay/read/reader.py", "sparkreplay/source/datasource.py", "sparkreplay/export/job.py", "epochfile/format.py",
        "messagestore/record.py", "messagestore/walker.py",
    } <= names  # fmt: skip
    assert {name.split("/")[0] for name in names} == {"sparkreplay", "epochfile", "messagestore", "mqruntime"}
    assert not [name for name in names if "/commands/" in name or "/resend/" in name or "__main__" in name]
    for name in ("store", "commitlog", "consumequeue", "dispatch", "settings"):
        assert f"messagestore/{name}.py" not in names


def test_two_archives_of_one_version_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.zip", "other.zip"):
        assert mqreplay("package", "--to", str(tmp_path / name)).code == 0
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.testzip() is None


def test_an_archive_that_spark_would_not_know_is_refused(tmp_path: Path) -> None:
    done = mqreplay("package", "--to", str(tmp_path / "reader.tar"))
    assert done.code == 2 and ".zip" in done.err
