"""The recorded log offsets of three brokers, with what a save would write."""

from __future__ import annotations

from controller.holdings import Held, Holdings, LogReport

ONE, TWO, THREE = ("c", "a", 1), ("c", "a", 2), ("c", "a", 3)


class Table:
    """Offsets of brokers that were granted their ids once; `changes` counts the saves that would be due."""

    def __init__(self) -> None:
        self.check_codes = {key: f"h{key[2]}:1;7" for key in (ONE, TWO, THREE)}
        self.changes = 0
        self.holdings = Holdings(self.check_codes.get, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def hear(
        self,
        key: tuple[str, str, int],
        connection: int,
        end: int,
        confirm: int | None = None,
        *,
        epoch: int = 1,
        member: bool = True,
    ) -> Held | None:
        report = LogReport(epoch, end, end if confirm is None else confirm)
        return self.holdings.heard(key, connection, report, member=member)

    @staticmethod
    def report(end: int, confirmed: int, start_number: int) -> LogReport:
        """A report of epoch 1."""
        return LogReport(1, end, confirmed, start_number)

    @property
    def incomplete(self) -> frozenset[tuple[str, str, int]]:
        return self.holdings.incomplete
