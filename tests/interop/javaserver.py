"""Becomes a server of Apache RocketMQ 5.3.3: `python -m tests.interop.javaserver -c FILE`; `broker-0.conf` makes it a broker.

Invariant: the process stays the same one, so that who started it may signal it; its heap is small, its logs go beside FILE."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.interop.javapeer import BROKER_JARS, CONTROLLER_JARS, NAMESRV_JARS, SERVER

MEMORY = {"broker": "192m", "controller": "96m", "namesrv": "64m"}
SERVERS = {
    "broker": (BROKER_JARS, "org.apache.rocketmq.broker.BrokerStartup"),
    "controller": (CONTROLLER_JARS, "org.apache.rocketmq.controller.ControllerStartup"),
    "namesrv": (NAMESRV_JARS, "org.apache.rocketmq.namesrv.NamesrvStartup"),
}


def main() -> None:
    file = Path(sys.argv[sys.argv.index("-c") + 1]).resolve()
    kind = file.stem.partition("-")[0]
    jars, program = SERVERS[kind]
    home = file.parent / "java" / file.stem
    heap = [f"-Xms{MEMORY[kind]}", f"-Xmx{MEMORY[kind]}", "-XX:MaxDirectMemorySize=256m"]
    java = shutil.which("java") or "java"
    os.environ["ROCKETMQ_HOME"] = str(home)
    command = [java, *heap, *SERVER, f"-Duser.home={home}", "-cp", f"{jars}/*", program, "-c", str(file)]
    os.execv(java, command)  # noqa: S606 - nothing of it is a shell's


if __name__ == "__main__":
    main()
