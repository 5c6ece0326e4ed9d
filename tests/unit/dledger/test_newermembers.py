"""Which newer list of members counts among the lists that other members report."""

from __future__ import annotations

from dledger.raft.newermembers import NewerMembers

OWN = "n0-h:1;n1-h:2;n2-h:3"


def newer(index: int = 7) -> NewerMembers:
    """Of n0, whose list OWN is in entry `index`."""
    made = NewerMembers("n0", ("n0", "n1", "n2"))
    made.members_are(index, ("n0", "n1", "n2"))
    return made


def test_a_report_of_a_known_member_counts() -> None:
    made = newer()
    made.reported("n1", 9, f"{OWN};n3-h:4", 0)
    assert made.at(0) == {"n3": "h:4"}


def test_reports_of_others_older_lists_and_lists_without_this_member_do_not_count() -> None:
    made = newer()
    made.reported("n3", 9, f"{OWN};n3-h:4", 0)
    made.reported("n1", 7, f"{OWN};n3-h:4", 0)
    made.reported("n2", 9, "n2-h:3;n3-h:4", 0)
    assert made.at(0) == {}
    made.reported("n1", 8, f"{OWN};n4-h:5", 0)
    assert made.at(0) == {"n4": "h:5"}


def test_a_member_that_a_report_names_may_report_a_still_newer_list() -> None:
    """n1 was removed since, and n3 is the only one that knows n4."""
    made = newer()
    made.reported("n1", 9, f"{OWN};n3-h:4", 0)
    made.reported("n3", 12, "n0-h:1;n3-h:4;n4-h:5", 0)
    assert made.at(0) == {"n3": "h:4", "n4": "h:5"}
    made.reported("n4", 15, "n0-h:1;n4-h:5;n5-h:6", 0)
    assert made.at(0) == {"n4": "h:5", "n5": "h:6"}


def test_the_newest_report_hides_members_that_older_ones_name() -> None:
    made = newer()
    made.reported("n1", 9, f"{OWN};n3-h:4", 0)
    made.reported("n2", 12, f"{OWN};n4-h:5", 0)
    assert made.at(0) == {"n4": "h:5"}


def test_a_report_counts_for_a_while() -> None:
    """The member that it names may have been removed since, or its list may have been cut."""
    made = newer()
    made.reported("n2", 9, f"{OWN};n3-h:4", 0)
    made.reported("n1", 12, OWN, 2_000)
    assert made.at(4_999) == {}
    made.reported("n2", 9, f"{OWN};n3-h:4", 4_999)
    assert made.at(6_999) == {} and made.at(7_000) == {"n3": "h:4"}
    assert made.at(9_998) == {"n3": "h:4"} and made.at(9_999) == {}


def test_a_later_report_of_a_member_replaces_its_former_one() -> None:
    made = newer()
    made.reported("n1", 9, f"{OWN};n3-h:4", 0)
    made.reported("n1", 8, f"{OWN};n4-h:5", 0)
    assert made.at(0) == {"n4": "h:5"}
    made.reported("n1", 6, OWN, 0)
    assert made.at(0) == {}


def test_a_report_lasts_while_the_own_list_is_older_and_has_the_reporter() -> None:
    made = newer()
    made.reported("n1", 12, f"{OWN};n3-h:4;n4-h:5", 0)
    made.reported("n2", 9, f"{OWN};n3-h:4", 0)
    made.members_are(9, ("n0", "n1", "n2", "n3"))
    assert made.at(0) == {"n4": "h:5"}
    made.members_are(10, ("n0", "n2", "n3"))
    assert made.at(0) == {}
    made.members_are(8, ("n0", "n1", "n2"))
    assert made.at(0) == {"n3": "h:4"}, "n1 must report again"


def test_reports_of_one_index_give_one_list_in_each_order() -> None:
    texts = f"{OWN};n3-h:4", f"{OWN};n4-h:5"
    found = []
    for first, second in (texts, reversed(texts)):
        made = newer()
        made.reported("n1", 9, first, 0)
        made.reported("n2", 9, second, 0)
        found.append(made.at(0))
    assert found == [{"n4": "h:5"}, {"n4": "h:5"}]
