"""The links that a partition cuts, and whether the set must serve its clients meanwhile."""

from __future__ import annotations

import random
from itertools import islice, product

import pytest

from localcluster.partitions import (
    CLIENT,
    ELECTION_MS_MAX,
    NAMESRV,
    OF_CONTROLLERS,
    SHRINK_MS_MAX,
    Roles,
    Shape,
    between,
    draw,
    serving_ms_max,
    shapes,
)

ROLES = Roles("broker-0", ["broker-1", "broker-2"], "controller-1", ["controller-0", "controller-2"])
PARTITIONS = [draw(shape, ROLES, random.Random(seed)) for shape, seed in product(Shape, range(40))]


def both(one: list[str], other: list[str]) -> frozenset[tuple[str, str]]:
    return between(one, other) | between(other, one)


def test_every_shape_occurs_once_in_each_round_in_the_order_of_the_seed() -> None:
    rounds = list(islice(shapes(random.Random(3)), 2 * len(Shape)))
    assert set(rounds[: len(Shape)]) == set(rounds[len(Shape) :]) == set(Shape)
    assert rounds == list(islice(shapes(random.Random(3)), 2 * len(Shape)))
    assert rounds != list(islice(shapes(random.Random(4)), 2 * len(Shape)))


@pytest.mark.parametrize("shape", Shape)
def test_the_same_seed_draws_the_same_partition(shape: Shape) -> None:
    assert draw(shape, ROLES, random.Random(5)) == draw(shape, ROLES, random.Random(5))


def test_only_links_between_different_known_processes_are_cut() -> None:
    for partition in PARTITIONS:
        assert partition.cuts
        for source, target in partition.cuts:
            assert source != target
            assert {source, target} <= {*ROLES.everyone, CLIENT}


def test_one_way_partitions_leave_the_reverse_direction_open() -> None:
    for partition in PARTITIONS:
        reverse = {(target, source) for source, target in partition.cuts}
        one_way = partition.shape in (Shape.MASTER_MUTE, Shape.MASTER_DEAF, Shape.SLAVE_MUTE)
        assert reverse.isdisjoint(partition.cuts) if one_way else reverse == partition.cuts


def test_a_master_cut_off_from_controllers_alone_keeps_its_slaves_and_its_clients() -> None:
    partition = draw(Shape.MASTER_FROM_CONTROLLERS, ROLES, random.Random(1))
    assert partition.cuts == both(["broker-0"], ROLES.controllers)


def test_clients_are_on_either_side_of_a_partition() -> None:
    alone = [partition.cuts for partition in PARTITIONS if partition.shape is Shape.MASTER_ALONE]
    assert {("client", "broker-0") in cuts for cuts in alone} == {True, False}


def test_a_set_without_a_partition_must_be_served() -> None:
    assert serving_ms_max(ROLES, frozenset()) == SHRINK_MS_MAX


@pytest.mark.parametrize(
    ("one", "other", "owed"),
    [
        (
            ["broker-0"],
            ["broker-1", "broker-2", "controller-0", "controller-1", "controller-2"],
            ELECTION_MS_MAX,
        ),
        (["broker-0"], ["controller-0", "controller-1", "controller-2"], ELECTION_MS_MAX),
        (["broker-0"], ["controller-0", "controller-1"], ELECTION_MS_MAX),
        (["broker-0"], ["controller-1"], SHRINK_MS_MAX),  # two controllers are enough
        (["broker-0"], [NAMESRV], ELECTION_MS_MAX),
        (["broker-0"], [CLIENT], ELECTION_MS_MAX),
        (["broker-1"], ["broker-0"], SHRINK_MS_MAX),
        (
            ["controller-1"],
            ["controller-0", "controller-2", "broker-0", "broker-1", "broker-2"],
            SHRINK_MS_MAX,
        ),
        (["controller-1"], ["broker-0", "broker-1", "broker-2"], SHRINK_MS_MAX),
        (["broker-0", "broker-1", "controller-1"], ["broker-2", "controller-0", "controller-2"], None),
        (
            ["broker-0", "controller-1"],
            ["broker-1", "broker-2", "controller-0", "controller-2"],
            ELECTION_MS_MAX,
        ),
        (["controller-0"], ["controller-1", "controller-2"], SHRINK_MS_MAX),
        (ROLES.controllers, [NAMESRV, CLIENT], SHRINK_MS_MAX),
    ],
)
def test_service_is_due_if_two_members_and_a_controller_majority_are_connected(
    one: list[str], other: list[str], owed: int | None
) -> None:
    assert serving_ms_max(ROLES, both(one, other)) == owed


def test_unconnected_controllers_are_no_majority() -> None:
    apart = both(["controller-0"], ["controller-1", "controller-2"]) | both(
        ["controller-1"], ["controller-2"]
    )
    assert serving_ms_max(ROLES, apart) is None


def test_a_link_cut_in_one_direction_is_no_link() -> None:
    assert serving_ms_max(ROLES, between(["broker-0"], ROLES.controllers)) == ELECTION_MS_MAX
    assert serving_ms_max(ROLES, between(ROLES.controllers, ["broker-0"])) == ELECTION_MS_MAX


def test_no_service_is_due_while_links_flap() -> None:
    again = [partition for partition in PARTITIONS if partition.rounds > 1]
    assert 0 < len(again) < len(PARTITIONS) / 2
    for partition in again:
        assert partition.serving_ms_max is None
        assert f"{partition.rounds} times" in partition.description


def test_without_controllers_a_majority_of_brokers_must_serve() -> None:
    roles = Roles("broker-0", ["broker-1", "broker-2"], None, [])
    assert roles.everyone == ["namesrv", "broker-0", "broker-1", "broker-2"]
    drawn = {next(shapes(random.Random(seed), controllers=False)) for seed in range(200)}
    assert drawn == set(Shape) - OF_CONTROLLERS
    for shape in drawn:
        for seed in range(50):
            partition = draw(shape, roles, random.Random(seed))
            assert {name for way in partition.cuts for name in way} <= {*roles.everyone, CLIENT}
    rest = ["broker-1", "broker-2", "namesrv", CLIENT]
    assert serving_ms_max(roles, between(["broker-0"], rest) | between(rest, ["broker-0"])) == ELECTION_MS_MAX
    assert serving_ms_max(roles, between(["namesrv"], roles.brokers)) is None
    alone = between(["broker-0"], ["broker-1"]) | between(["broker-2"], ["broker-0", "broker-1"])
    assert serving_ms_max(roles, alone) is None
