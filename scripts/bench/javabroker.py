"""`python -m scripts.bench.javabroker -c FILE` becomes a broker of Apache RocketMQ 5.3.3.

Invariant: the process stays the same, so that its parent can measure and signal it. The JVM compiles all it can, and has a
gigabyte of heap. Its logs are next to FILE."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from scripts.peers.javapeer import BROKER_JARS
from scripts.peers.javaserver import for_java, tls_options

MEMORY = ["-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=512m"]
MAIN = "org.apache.rocketmq.broker.BrokerStartup"


def main() -> None:
    file = Path(sys.argv[sys.argv.index("-c") + 1]).resolve()
    home = file.parent / f"{file.stem}-home"
    file = for_java(file, home)
    java = shutil.which("java") or "java"
    command = [
        java,
        *MEMORY,
        "-XX:+UseG1GC",
        *tls_options(file),
        f"-Duser.home={home}",
        "-cp",
        f"{BROKER_JARS}/*",
        MAIN,
    ]
    os.environ["ROCKETMQ_HOME"] = str(home)
    os.execv(java, [*command, "-c", str(file)])  # noqa: S606 - nothing of it is a shell's


if __name__ == "__main__":
    main()
