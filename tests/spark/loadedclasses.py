"""A class data sharing archive of Spark: a session that maps it starts in half the time.

Invariant: a missing or outdated file changes nothing, and a file under its name is complete. The first run on
a machine makes it in `~/.cache/autoswitch-mq/spark-classes`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sparkreplay.engine.engine import missing_for_spark
from tests.spark.sessions import ROOT

FOLDER = Path("~/.cache/autoswitch-mq/spark-classes").expanduser()
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SESSION = """
from pyspark import SparkContext
from tests.spark.sessions import session
with session("local[2,2]") as spark:
    spark.range(1000).filter("id % 3 = 0").groupBy("id").count().collect()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def java_options() -> str:
    """Options for JVMs that live for seconds and spend most of them on loading and compiling. Warnings about
    an outdated file are off, because they go to stdout."""
    file = _archive()
    return QUICK_START if file is None else f"{QUICK_START} -Xlog:disable -XX:SharedArchiveFile={file}"


def _archive() -> Path | None:
    """The file for this Java and this Spark; None if it cannot be made."""
    if missing_for_spark() is not None:
        return None
    import pyspark

    java = Path(shutil.which("java") or "java").resolve()
    named = f"{java} {java.stat().st_mtime_ns} {Path(pyspark.__file__).parent} {pyspark.__version__}"
    file = FOLDER / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.jsa"
    return file if file.exists() or _made(file) else None


def _made(file: Path) -> bool:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        fresh = Path(folder) / file.name
        options = f"{QUICK_START} -XX:ArchiveClassesAtExit={fresh}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": options}
        run = [sys.executable, "-c", SESSION]
        subprocess.run(run, env=environment, cwd=folder, capture_output=True, check=False)
        if fresh.exists():
            fresh.rename(file)
    return file.exists()
