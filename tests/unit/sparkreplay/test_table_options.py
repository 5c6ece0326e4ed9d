"""The table properties that Spark passes, and the read options made of them."""

from __future__ import annotations

import pytest

from sparkreplay.errors import OptionError
from sparkreplay.read.tableoptions import is_table, table_options

OWN = {
    "owner": "root",
    "provider": "RocketMQ",
    "comment": "c",
    "external": "true",
    "collation": "UTF8",
    "a.b": "c",
}


def test_a_table_is_known_by_its_provider() -> None:
    assert is_table(OWN) and is_table({"Provider": "rocketmq"})
    assert not is_table({"owner": "root", "path": "/x"}) and not is_table({"provider": "parquet"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"location": "file:/x", "path": "file:/x"}, {"path": "file:/x"}),
        ({"location": "file:/x"}, {"path": "file:/x"}),
        ({"option.path": "/x", "path": "file:/x", "location": "file:/x"}, {"path": "/x"}),
        ({"option.paths": "[]", "paths": "[]"}, {"path": "[]"}),
        ({"option.Topic": "o", "topic": "o"}, {"topic": "o"}),
        ({"option.topick": "o", "topick": "o"}, {"topick": "o"}),
        ({}, {}),
    ],
)
def test_only_options_that_the_statement_names_are_options(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert table_options({**OWN, **given}) == expected


@pytest.mark.parametrize("name", ["topic", "CRC", "endingOffsets"])
def test_an_option_among_the_properties_is_refused(name: str) -> None:
    with pytest.raises(
        OptionError, match=f"option {name.lower() if name == 'CRC' else name}: is a table property"
    ):
        table_options({**OWN, name: "x", "path": "/x"})
