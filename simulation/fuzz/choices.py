"""Shared parts of the fuzzing targets for bytes from the wire and for bytes from disks.

Invariant: if the first bytes of an input choose a class or a code, a mutation can make them choose another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epochfile.history import EpochHistory

VECTORS = Path(__file__).parents[2] / "tests" / "vectors"


CHOICE = 2
"""The first bytes of some inputs, which choose the class or the code of the rest."""


def chosen(data: bytes, among: list[Any] | tuple[Any, ...]) -> tuple[Any, bytes]:
    return among[int.from_bytes(data[:CHOICE], "big") % len(among)], data[CHOICE:]


def choose(number: int, data: bytes) -> bytes:
    return number.to_bytes(CHOICE, "big") + data


def records() -> Iterator[bytes]:
    """Records of a log that Java wrote."""
    log = (VECTORS / "spark/raft-mixed/commitlog/00000000000000000000").read_bytes()
    at = 0
    for _ in range(3):
        size = int.from_bytes(log[at : at + 4], "big")
        yield log[at : at + size]
        at += size


HISTORY = EpochHistory([(1, 0), (3, 4_096)])


JSON_TOKENS = (
    b"null",
    b"true",
    b"1e999",
    b"Infinity",
    b'"\\ud800"',
    b"{}",
    b"[]",
    b'{"@type":"java.lang.Class"}',
)
