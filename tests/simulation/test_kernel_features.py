"""Features of a seed are drawn each by itself; what was asked for comes first, and what cannot be played together is not."""

from __future__ import annotations

import pytest

from simulation.kernel.features import Asked, Feature, FeatureError, Features, named

SEEDS = range(400)


def world(*more: Feature) -> Features:
    return Features(
        Feature("stormy", 0.1, "", excludes=frozenset({"calm"})),
        Feature("calm", 0.5, ""),
        Feature("wind", 0.25, ""),
        Feature("sails", 0.5, "", brings=frozenset({"wind"})),
        *more,
    )


def shares(features: Features, asked: Asked) -> dict[str, float]:
    played = [features.of(seed, asked) for seed in SEEDS]
    return {name: sum(name in each for each in played) / len(played) for name in features}


def test_each_feature_has_its_share_of_the_seeds_and_any_two_that_may_meet_do() -> None:
    found = shares(world(), Asked())
    assert 0.05 < found["stormy"] < 0.15 and 0.4 < found["calm"] < 0.5
    assert 0.4 < found["sails"] < 0.6 and found["wind"] > found["sails"]
    assert any({"calm", "wind"} <= world().of(seed) for seed in SEEDS)


def test_a_new_feature_changes_no_other_ones_seeds() -> None:
    more = world(Feature("gulls", 0.5, ""))
    assert [more.of(seed) - {"gulls"} for seed in SEEDS] == [world().of(seed) for seed in SEEDS]


def test_of_two_that_exclude_each_other_the_earlier_one_is_played_unless_the_other_was_asked_for() -> None:
    assert not any({"stormy", "calm"} <= world().of(seed) for seed in SEEDS)
    asked = Asked.to_play(["calm"])
    assert shares(world(), asked)["calm"] == 1
    assert shares(world(), asked)["stormy"] == 0
    assert world().of(next(seed for seed in SEEDS if "stormy" in world().of(seed)), asked) >= {"calm"}


def test_what_was_asked_for_is_played_with_what_it_brings() -> None:
    assert all(world().of(seed, Asked.to_play(["sails"])) >= {"sails", "wind"} for seed in SEEDS)


def test_what_is_left_out_is_played_by_nothing_that_brings_it_either() -> None:
    found = shares(world(), Asked.to_play([], without=["wind"]))
    assert found["wind"] == found["sails"] == 0
    assert found["calm"] > 0.4


@pytest.mark.parametrize(
    ("added", "left_out"), [(["stormy", "calm"], []), (["sails"], ["wind"]), (["calm"], ["calm"])]
)
def test_what_cannot_be_is_refused(added: list[str], left_out: list[str]) -> None:
    with pytest.raises(FeatureError):
        world().of(1, Asked.to_play(added, without=left_out))


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        FeatureError, match="no such feature: rain; this world has: calm, sails, stormy, wind"
    ):
        Asked.to_play(["rain"]).check(world())


def test_a_feature_that_names_one_that_is_not_there_is_refused() -> None:
    with pytest.raises(FeatureError, match="is there twice, or names one"):
        Features(Feature("sails", 1, "", brings=frozenset({"wind"})))
    with pytest.raises(FeatureError, match="is there twice, or names one"):
        Features(Feature("sails", 1, ""), Feature("sails", 1, ""))


def test_an_error_has_a_note_of_what_was_played() -> None:
    with pytest.raises(ZeroDivisionError) as raised, named({"wind", "calm"}):
        raise ZeroDivisionError
    assert raised.value.__notes__ == ["it plays calm, wind"]
