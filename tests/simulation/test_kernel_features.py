"""Each feature of a seed is drawn independently; requested ones first, conflicting ones never together."""

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


def test_each_feature_has_its_share_of_seeds_and_compatible_ones_combine() -> None:
    found = shares(world(), Asked())
    assert 0.05 < found["stormy"] < 0.15 and 0.4 < found["calm"] < 0.5
    assert 0.4 < found["sails"] < 0.6 and found["wind"] > found["sails"]
    assert any({"calm", "wind"} <= world().of(seed) for seed in SEEDS)


def test_a_new_feature_does_not_change_the_seeds_of_others() -> None:
    more = world(Feature("gulls", 0.5, ""))
    assert [more.of(seed) - {"gulls"} for seed in SEEDS] == [world().of(seed) for seed in SEEDS]


def test_of_two_excluding_features_the_earlier_is_played_unless_overridden() -> None:
    assert not any({"stormy", "calm"} <= world().of(seed) for seed in SEEDS)
    asked = Asked.to_play(["calm"])
    assert shares(world(), asked)["calm"] == 1
    assert shares(world(), asked)["stormy"] == 0
    assert world().of(next(seed for seed in SEEDS if "stormy" in world().of(seed)), asked) >= {"calm"}


def test_a_requested_feature_is_played_with_its_dependencies() -> None:
    assert all(world().of(seed, Asked.to_play(["sails"])) >= {"sails", "wind"} for seed in SEEDS)


def test_an_excluded_feature_excludes_the_features_that_need_it() -> None:
    found = shares(world(), Asked.to_play([], without=["wind"]))
    assert found["wind"] == found["sails"] == 0
    assert found["calm"] > 0.4


@pytest.mark.parametrize(
    ("added", "left_out"), [(["stormy", "calm"], []), (["sails"], ["wind"]), (["calm"], ["calm"])]
)
def test_contradicting_feature_requests_are_refused(added: list[str], left_out: list[str]) -> None:
    with pytest.raises(FeatureError):
        world().of(1, Asked.to_play(added, without=left_out))


def test_an_unknown_feature_is_refused_with_the_known_names() -> None:
    with pytest.raises(
        FeatureError, match="no such feature: rain; this world has: calm, sails, stormy, wind"
    ):
        Asked.to_play(["rain"]).check(world())


def test_a_feature_that_names_a_missing_one_is_refused() -> None:
    with pytest.raises(FeatureError, match="is there twice, or names one"):
        Features(Feature("sails", 1, "", brings=frozenset({"wind"})))
    with pytest.raises(FeatureError, match="is there twice, or names one"):
        Features(Feature("sails", 1, ""), Feature("sails", 1, ""))


def test_an_error_has_a_note_of_the_played_features() -> None:
    with pytest.raises(ZeroDivisionError) as raised, named({"wind", "calm"}):
        raise ZeroDivisionError
    assert raised.value.__notes__ == ["it plays calm, wind"]
