"""The archive of `mqreplay package` is all that Spark's workers need."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sparkreplay.engine.engine import missing_for_spark
from tests.unit.sparkreplay.commandline import mqreplay, two_days

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
]

LIBRARIES = ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "pyspark", "py4j", "zstandard", "lz4")
JOB = """
import sys
archive, store = sys.argv[1:]
sys.path.insert(0, archive)
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
)
spark.sparkContext.addPyFile(archive)
from sparkreplay import register
register(spark)

def seen(_):
    import sparkreplay.read.reader
    ours = [name for name in ("broker", "remoting", "mqruntime.log") if __import__("importlib.util").util.find_spec(name)]
    light = not {"uvloop", "pydantic", "orjson", "click", "rich"} & set(sys.modules)
    return sparkreplay.read.reader.__file__, ours, light

print(spark.sparkContext.parallelize([0], 1).map(seen).collect())
frame = spark.read.format("rocketmq").option("splitBytes", "16k").load(store)
print("rows", frame.count(), "topics", frame.select("topic").distinct().count())
spark.stop()
"""


@pytest.mark.long
def test_workers_that_have_only_the_archive_read_a_store(tmp_path: Path) -> None:
    store = two_days(tmp_path / "store").write()
    archive = tmp_path / "reader.zip"
    assert mqreplay("package", "--to", str(archive)).code == 0
    libraries = tmp_path / "site"
    libraries.mkdir()
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    installed = Path(found.origin).parents[1]
    for name in LIBRARIES:
        if (installed / name).exists():
            (libraries / name).symlink_to(installed / name)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    environment = {
        **os.environ, "PYTHONPATH": str(libraries), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python),
    }  # fmt: skip
    done = subprocess.run(
        [str(python), "job.py", str(archive), store],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows 400 topics 3" in done.stdout
    where = done.stdout.splitlines()[0]
    assert "reader.zip" in where and where.endswith("[], True)]"), where
