"""Start numbers: a count of the starts of each member, as one member of the group knows it. A disk that was set back to an
earlier image is recognised by a number that other members received after the image was taken.

Each start draws a greater number, and a running member draws the next number every few seconds. Each number has a `life`, which
the start draws at random. So a disk that was set back is not mistaken for its lost life when it draws the same number again.
Every message has the numbers that its sender knows of all members, so it is enough if one member received a number.

Invariant: a member's own number is durable before it is sent, so other members know no newer number unless the disk was set
back. The known numbers of other members only grow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

NUMBER_MAX = (1 << 53) - 1
LIFE_MAX = (1 << 31) - 1
TEXT_MAX = 8192
BEYOND = 1_000
"""A leader that proved that a disk was set back adds this to the member's number. It is more than the member may have drawn
meanwhile."""


class Start(NamedTuple):
    """A start number with its life. `number` is 0 if no number was drawn yet."""

    number: int = 0
    life: int = 0

    def newer_than(self, other: Start) -> bool:
        same_number = self.number == other.number
        return self.number > other.number or (same_number and self.life != other.life)


@dataclass(frozen=True, slots=True)
class NewNumbers:
    """The new numbers in a message."""

    sender_began: bool = False
    """Whether it is the first message of a life of its sender."""
    others: bool = False
    """Whether it has a newer number of another member."""


class StartNumbers:
    """The numbers that one member knows. `own` is the number on this member's disk; None if the disk has no number (an older
    version wrote none), and then no other number contradicts the disk. `known` are the numbers of other members."""

    def __init__(self, self_id: str, own: Start | None, known: Mapping[str, Start], *, life: int) -> None:
        self.self_id = self_id
        self.life = life
        self.own = own or Start()
        self.is_there = own is not None
        self.known = dict(known)
        self.claimed = Start()
        """The newest number that other members know of this member, if this disk does not have it."""
        self.text = ""
        """The text in each message, with the numbers of the present members."""
        self._members: frozenset[str] | None = None
        self._read: dict[str, tuple[str, Start | None]] = {}
        """Sender -> the last text from it, and the sender's own number in this text."""
        self._encode()

    @property
    def set_back(self) -> bool:
        """Whether other members know a number that this disk does not have."""
        return self.is_there and self.claimed.newer_than(self.own)

    def next(self, *, above_claimed: bool) -> Start:
        """Returns the next number. The caller makes it durable and then calls `drawn`."""
        number = max(self.own.number, self.claimed.number if above_claimed else 0)
        return Start(min(number, NUMBER_MAX - 1) + 1, self.life)

    def drawn(self, own: Start) -> None:
        self.own = own
        self.is_there = True
        self._encode()

    def members_are(self, members: Collection[str]) -> None:
        """Only numbers of these members count from now on."""
        self._members = frozenset(members)
        self._read.clear()
        self._encode()

    def receive(self, sender: str, text: str, members: Collection[str]) -> NewNumbers:
        """Reads the `text` in a message of `sender`. Only the numbers of `members` are used."""
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
        """Whether the last message of `sender` is from a former life of the sender, or from a disk that was set back."""
        _, said = self._read.get(sender, ("", None))
        known = self.known.get(sender)
        return said is not None and known is not None and said.life != known.life

    def contradicted(self, member: str, life: int) -> None:
        """Called when `member` has lost entries that it acknowledged, so that its disk must be an older image."""
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
    """The start numbers in `text`; none if the text is malformed."""
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
