"""`python -m scripts.bench.javaledger --peers PEERS --id ID --store FOLDER` becomes a member of a group of DLedger 0.3.1.2.
With --load the member appends by itself once it leads.

Invariant: the process stays the same, so that its parent can measure and signal it. The JVM compiles all it can, and has a
gigabyte of heap. Its logs are in FOLDER."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from scripts.bench.ownload import outcome_file, parser_of_members
from scripts.peers.javapeer import BROKER_JARS, SOURCES

PROGRAM = Path(__file__).parent / "java" / "LedgerMember.java"
MEMORY = ["-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=512m"]


def main() -> None:
    asked = parser_of_members(__doc__).parse_args()
    java = shutil.which("java") or "java"
    path = f"{SOURCES}:{BROKER_JARS}/*"  # SOURCES has a logging configuration that keeps it silent
    command = [java, *MEMORY, "-XX:+UseG1GC", f"-Duser.home={asked.store}", "-cp", path, str(PROGRAM)]
    load = [str(outcome_file(asked.store)), *asked.load] if asked.load else []
    os.execv(java, [*command, asked.group, asked.peers, asked.id, asked.store, *load])  # noqa: S606 - nothing of it is a shell's


if __name__ == "__main__":
    main()
