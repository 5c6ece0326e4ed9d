"""A Java broker as a test's pair or group starts it."""

from __future__ import annotations

from pathlib import Path

from scripts.peers.javaserver import java_server


def java_broker(file: Path) -> list[str]:
    """As a pair's and a group's commands are asked for."""
    return java_server("broker", file, file.parent / file.stem)
