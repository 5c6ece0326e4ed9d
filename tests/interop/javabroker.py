"""The command of a Java broker, for a pair or group of a test."""

from __future__ import annotations

from pathlib import Path

from scripts.peers.javaserver import java_server


def java_broker(file: Path) -> list[str]:
    """Called as the commands of a pair or group are."""
    return java_server("broker", file, file.parent / file.stem)
