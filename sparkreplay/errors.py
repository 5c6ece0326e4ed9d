"""What can be wrong with a store or with what was asked of it; each error says what, where and what to do."""

from __future__ import annotations


class ReplayError(Exception):
    """A read that cannot be exact. Nothing was skipped or guessed to get here."""


class OptionError(ReplayError):
    """An option has a value that cannot be used, or two options contradict each other."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"option {option}: {why}")
        self.option = option


class StoreUnreadable(ReplayError):
    """The folder is no store, or parts of it are missing or malformed."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class LogCorrupted(ReplayError):
    """Bytes below the committed bound are not the records that the log promises."""

    def __init__(self, path: str, offset: int, why: str) -> None:
        super().__init__(
            f"{path}: at physical offset {offset}: {why}; "
            "read another replica of the set, or bound the read below it (endingOffsets)"
        )
        self.path = path
        self.offset = offset


class SegmentGone(ReplayError):
    """A planned segment was deleted (retention) before its worker opened it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: was deleted after the read was planned; run the job again, "
            "or with failOnDataLoss=false from the log's new beginning"
        )
        self.path = path


class EpochChanged(ReplayError):
    """The log was truncated below the bound while it was read; what was read must be thrown away."""

    def __init__(self, path: str, bound: int, before: object, after: object) -> None:
        super().__init__(
            f"{path}: the epochs below the bound {bound} changed while it was read, from {before} to {after}; "
            "run the job again for a new bound"
        )
