"""Each request that a server answers has a row in docs/requests.md, with its allowed senders and how they are
checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dledger.raft.messages import MessageCode
from remoting.codes import RequestCode
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.groupset import GroupSet
from tests.cluster.pairset import Pair
from tests.support.notedservers import servers_noted

PAGE = Path(__file__).parents[2] / "docs" / "requests.md"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (\d[\d, ]*) \| ([A-Z][\w, ]*) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
SECTIONS = {9876: "Name servers", 9878: "Controllers", 10911: "Brokers", 10909: "Brokers"}
MEMBERS = "Member port of Raft mode"
"""The sections of all other ports."""


def rows_of(section: str) -> list[tuple[list[int], list[str], tuple[str, ...]]]:
    parts = SECTION.split(PAGE.read_text())
    text = parts[parts.index(section) + 1]
    return [
        ([int(code) for code in codes.split(",")], [name.strip() for name in names.split(",")], tuple(rest))
        for codes, names, *rest in ROW.findall(text)
    ]


def under_controllers(world: World) -> None:
    Cluster(world, 1, minInSyncReplicas=1).start_up()


def in_a_pair(world: World) -> None:
    Pair(world).start_up()


def in_raft_mode(world: World) -> None:
    GroupSet(world).start_up()


@pytest.fixture(scope="module")
def answered() -> dict[str, set[int]]:
    """Section -> the codes that servers of its ports answer, in any mode."""
    found: dict[str, set[int]] = {}
    with servers_noted() as noted:
        for number, started in enumerate((under_controllers, in_a_pair, in_raft_mode)):
            with World(number + 1) as world:
                started(world)
        for port, router in noted:
            codes = {*router.handlers, *router.batch_handlers}
            found.setdefault(SECTIONS.get(port, MEMBERS), set()).update(codes)
    return found


@pytest.mark.parametrize("section", [*dict.fromkeys(SECTIONS.values()), MEMBERS])
def test_each_request_of_each_port_has_one_row(answered: dict[str, set[int]], section: str) -> None:
    listed = [code for codes, _, _ in rows_of(section) for code in codes]
    assert len(listed) == len(set(listed)), "a request has two rows"
    assert sorted(listed) == sorted(answered[section])


@pytest.mark.parametrize("section", [*dict.fromkeys(SECTIONS.values()), MEMBERS])
def test_a_row_of_the_requests_page_is_complete(section: str) -> None:
    for codes, names, answers in rows_of(section):
        kinds = [RequestCode if code in list(RequestCode) else MessageCode for code in codes]
        assert names == [kind(code).name for kind, code in zip(kinds, codes, strict=True)]
        assert all(answer.strip() for answer in answers), f"{codes}"
