"""Stores that Java brokers wrote, from tests/vectors/spark, with the zeros at the ends of their files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VECTORS = Path(__file__).parents[2] / "vectors/spark"
FULL_BYTES = {"data": 16384, "commitlog": 16384, "index": 32 * 5 * 1024 * 1024, "0": 6000}
"""By the folder of a file."""


def java_store(name: str, root: Path) -> Path:
    shutil.copytree(VECTORS / name, root)
    for file in root.rglob("0*"):
        if file.is_file():
            os.truncate(file, FULL_BYTES[file.parent.name])
    os.truncate(root / "checkpoint", 4096)
    return root
