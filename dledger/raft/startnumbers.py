"""Start numbers: how often each member of a group has started, as one of them knows it. A disk that was set back to an earlier
image of itself is recognised by a number that others received after the image was taken.

Each start draws a greater number, and a running member draws another one every few seconds. With it goes a `life`, drawn at
random by the start, so that a disk that was set back does not pass for its lost life when it draws the same number again. Every
message carries the numbers of all members that its sender knows, so one member that received a number is enough.

Invariant: a member's own number is durable before it is sent, so others know no newer one, unless the disk was set back; known
numbers of others only grow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

NUMBER_MAX = (1 << 53) - 1
LIFE_MAX = (1 << 31) - 1
TEXT_MAX = 8192
BEYOND = 1_000
"""Added by a leader that proved a disk to be set back: more than that member may have drawn meanwhile."""


class Start(NamedTuple):
    """`number` 0: none was drawn yet."""

    number: int = 0
    life: int = 0

    def newer_than(self, other: Start) -> bool:
        same_number = self.number == other.number
        return self.number > other.number or (same_number and self.life != other.life)


@dataclass(frozen=True, slots=True)
class NewNumbers:
    """The news in a message."""

    sender_began: bool = False
    """It is the first message of a life of its sender."""
    others: bool = False
    """It has a newer number of another member."""


class StartNumbers:
    """`own` is the number on this member's disk; None: there is none, as after an older version, and nobody is contradicted.
    `known` are the numbers of others."""

    def __init__(self, self_id: str, own: Start | None, known: Mapping[str, Start], *, life: int) -> None:
        self.self_id = self_id
        self.life = life
        self.own = own or Start()
        self.is_there = own is not None
        self.known = dict(known)
        self.claimed = Start()
        """The newest number that others know of this member, if the disk does not have it."""
        self.text = ""
        """The text in each message: the numbers of the present members."""
        self._members: frozenset[str] | None = None
        self._read: dict[str, tuple[str, Start | None]] = {}
        """Sender -> the last text from it, and its own number in that."""
        self._encode()

    @property
    def set_back(self) -> bool:
        """Whether others know a number that the disk does not have."""
        return self.is_there and self.claimed.newer_than(self.own)

    def next(self, *, above_claimed: bool) -> Start:
        """The next number: make it durable, then call `drawn`."""
        number = max(self.own.number, self.claimed.number if above_claimed else 0)
        return Start(min(number, NUMBER_MAX - 1) + 1, self.life)

    def drawn(self, own: Start) -> None:
        self.own = own
        self.is_there = True
        self._encode()

    def members_are(self, members: Collection[str]) -> None:
        """Numbers of these members count from now on."""
        self._members = frozenset(members)
        self._read.clear()
        self._encode()

    def receive(self, sender: str, text: str, members: Collection[str]) -> NewNumbers:
        """Takes the `text` in a message of `sender`; only `members` are of interest."""
        read = self._read.get(sender)
        if read is not None and read[0] == text:
            return NewNumbers()
        said = decode(text)
        self._read[sender] = text, said.get(sender)
        began = others = False
        for member, start in said.items():
            if member == self.self_id:
                if start.newer_than(self.own) and start.number >= self.claimed.number:
                    self.claimed = start
            elif member in members and start.number > self.known.get(member, Start()).number:
                changed = start.life != self.known.get(member, Start()).life
                began = began or (changed and member == sender)
                others = True
                self.known[member] = start
        if others:
            self._encode()
        return NewNumbers(began, others)

    def is_of_former_life(self, sender: str) -> bool:
        """Whether the last message of `sender` is from a former life of it, or from a disk that was set back."""
        _, said = self._read.get(sender, ("", None))
        known = self.known.get(sender)
        return said is not None and known is not None and said.life != known.life

    def contradicted(self, member: str, life: int) -> None:
        """`member` has lost entries that it acknowledged: its disk is an older image."""
        known = self.known.get(member, Start())
        self.known[member] = Start(min(known.number + BEYOND, NUMBER_MAX), life)
        self._encode()

    def _encode(self) -> None:
        members = self._members
        known = {each: start for each, start in self.known.items() if members is None or each in members}
        self.text = encode({self.self_id: self.own} | known)


def encode(starts: Mapping[str, Start]) -> str:
    return ";".join(f"{member}={start.number}:{start.life}" for member, start in sorted(starts.items()))


def decode(text: str) -> dict[str, Start]:
    """The start numbers in `text`; none if no member wrote it."""
    found: dict[str, Start] = {}
    if not text or len(text) > TEXT_MAX:
        return found
    for row in text.split(";"):
        member, _, rest = row.rpartition("=")
        start = decode_start(rest)
        if not member or start is None:
            return {}
        found[member] = start
    return found


def decode_start(text: str) -> Start | None:
    number, _, life = text.partition(":")
    if not all(part.isascii() and part.isdigit() and len(part) <= 16 for part in (number, life)):
        return None
    start = Start(int(number), int(life))
    return start if start.number <= NUMBER_MAX and start.life <= LIFE_MAX else None
