"""Reads the epochs of a log from its epoch file or from a live broker, and compares two such lists of epochs.

Invariant: two lists are compared only in the range of the log that both cover. So epochs that retention removed from one list
count as no difference."""

from __future__ import annotations

from typing import TypeAlias

from epochfile.format import EpochFileDamaged, decode
from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.files import Files

FILE = "epochFileCheckpoint"

Epochs: TypeAlias = tuple[tuple[int, int], ...]
"""(epoch, physical offset of its first byte), oldest first, at least one."""


def read_epochs(files: Files) -> Epochs:
    """Raises StoreUnreadable."""
    try:
        return tuple((epoch, start_offset) for epoch, start_offset in decode(files.read(FILE)))
    except FileNotFoundError:
        raise StoreUnreadable(
            files.root,
            f"has no {FILE}; name a broker's storePathRootDir (stores of controller mode and of Raft mode can be read)",
        ) from None
    except EpochFileDamaged as error:
        raise StoreUnreadable(
            files.shown(FILE), f"{error}; put its copy {FILE}.bak in its place, or read another replica"
        ) from error


def epochs_within(epochs: Epochs, start: int, end: int) -> Epochs:
    """The epochs that wrote bytes of [start, end), each with its first offset there."""
    ends = [start_offset for _, start_offset in epochs[1:]] + [end]
    clipped = [
        (epoch, max(first, start), min(last, end)) for (epoch, first), last in zip(epochs, ends, strict=True)
    ]
    return tuple((epoch, first) for epoch, first, last in clipped if first < last)


def common_part(one: Epochs, other: Epochs, end: int) -> tuple[Epochs, Epochs]:
    """Both lists of epochs, cut to the part of [0, end) that both cover. There the lists are equal if the logs are."""
    start = max(one[0][1], other[0][1])
    return epochs_within(one, start, end), epochs_within(other, start, end)
