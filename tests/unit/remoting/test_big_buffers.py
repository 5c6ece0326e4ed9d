"""Which connection makes room when long frames take too much memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bigbuffers import TOO_MUCH, BigBuffers
from remoting.frame import BUFFER_BYTES_KEPT

BIG = 2 * BUFFER_BYTES_KEPT


@dataclass(eq=False)
class Connection:
    frame_begun_ms: int | None
    cuts: list[str] = field(default_factory=list)

    def cut(self, why: str) -> None:
        self.cuts.append(why)


def cut_among(*begun_ms: int | None, sizes: int = BIG, room: int = 2 * BIG) -> list[int]:
    """The places of the connections that were cut."""
    made, big = [Connection(each) for each in begun_ms], BigBuffers(room)
    for each in made:
        big.has(each, sizes)
    assert all(each.cuts in ([], [TOO_MUCH]) for each in made)
    return [place for place, each in enumerate(made) if each.cuts]


def test_the_connection_whose_frame_began_first_makes_room() -> None:
    assert cut_among(5, 3) == []
    assert cut_among(5, 3, 9) == [1]
    assert cut_among(None, 9, 8) == [2]
    assert cut_among(None, None, None) == [0]
    assert cut_among(*range(40), sizes=BUFFER_BYTES_KEPT) == []
    assert cut_among(1, sizes=3 * BIG) == [], "one frame of the greatest size is always received"


def test_a_buffer_that_was_released_counts_no_more() -> None:
    big = BigBuffers(2 * BIG)
    connections = [Connection(1) for _ in range(50)]
    for each in connections:
        big.has(each, BIG)
        big.has(each, 2 * BIG)
        big.has(each, 0)
    assert not any(each.cuts for each in connections)
