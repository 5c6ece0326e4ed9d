"""The mark of a store that ran contract A, under which a send is acknowledged before other replicas have the message.

    contract=A
    epoch=3              the newest epoch at the start that made the mark; -1 before the first
    from=1043            where the log ended then
    until=20480          where it ended when the broker started under another contract; absent while A is in force

Invariant: if `until` is present, everything that this store wrote under contract A ends at or below `until`. So the mark has
no effect once the log begins at or above `until`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FILE = "contractA"
_NAMES = ("contract", "epoch", "from", "until")


class ContractMarkDamaged(ValueError):
    """The mark is unreadable, so it is unknown which data may be trusted."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{FILE}: {why}; restore it, or write `contract=A`, `epoch=-1` and `from=0` into it, a line each"
        )


@dataclass(frozen=True, slots=True)
class ContractMark:
    epoch: int
    start_offset: int
    end_offset: int | None = None

    def outlived(self, log_min_offset: int) -> bool:
        """Whether retention has removed all that was written under contract A."""
        return self.end_offset is not None and self.end_offset <= log_min_offset

    def encode(self) -> bytes:
        lines = f"contract=A\nepoch={self.epoch}\nfrom={self.start_offset}\n"
        return (lines if self.end_offset is None else f"{lines}until={self.end_offset}\n").encode()


def decode(data: bytes) -> ContractMark:
    """Raises ContractMarkDamaged."""
    values: dict[str, str] = {}
    for line in data[:1024].decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition("=")
        if name not in _NAMES or not separator:
            raise ContractMarkDamaged(f"has the line {line[:40]!r}")
        values[name] = value.strip()
    if values.pop("contract", None) != "A":
        raise ContractMarkDamaged("does not say contract=A")
    try:
        numbers = {name: int(value) for name, value in values.items()}
        return ContractMark(numbers["epoch"], numbers["from"], numbers.get("until"))
    except (KeyError, ValueError):
        raise ContractMarkDamaged("epoch, from and until must be numbers") from None
