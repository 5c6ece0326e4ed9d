"""What a consumer wants of its topics, as heartbeats have it."""

from __future__ import annotations

from mqclient.selectors import Selector, selectors_of, sql, tags
from remoting.bodies.heartbeats import SubscriptionData


def test_a_selector_as_heartbeats_have_it() -> None:
    assert tags("").data("orders", 7) == SubscriptionData("orders", "*", [], [], 7, "TAG")
    wanted = SubscriptionData("orders", "TagB || TagA", ["TagA", "TagB"], [2598919, 2598920], 7, "TAG")
    assert tags("TagB || TagA").data("orders", 7) == wanted, "with String.hashCode of each tag"
    assert sql("a > 5").data("orders", 7) == SubscriptionData("orders", "a > 5", [], [], 7, "SQL92")


def test_topics_in_all_their_forms() -> None:
    everything = Selector()
    assert selectors_of("orders") == {"orders": everything}
    assert selectors_of(iter(["a", "b"])) == {"a": everything, "b": everything}
    assert selectors_of({"a": "*", "b": "X||Y", "c": sql("d is null")}) == {
        "a": everything,
        "b": Selector("X||Y"),
        "c": Selector("d is null", is_sql=True),
    }
    assert (everything.tags, tags("X || Y").tags, sql("X").tags) == (None, frozenset({"X", "Y"}), None)
