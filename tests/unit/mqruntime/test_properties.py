from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqruntime.properties import PropertiesError, dump, parse


def values(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(text.encode()).entries}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=1", "a", "1"),
        ("a:1", "a", "1"),
        ("a 1", "a", "1"),
        ("a\t=\t1", "a", "1"),
        ("  a = 1", "a", "1"),
        ("a==1", "a", "=1"),
        ("a", "a", ""),
        ("a=", "a", ""),
        (r"a\=b=1", "a=b", "1"),
        (r"a\ b c", "a b", "c"),
        (r"path=C:\\x\ty", "path", "C:\\x\ty"),
        (r"a=\u0041\u00e9", "a", "Aé"),
        (r"a=\uD83D\uDE00", "a", "😀"),
        ("a=one,\\\n   two,\\\r\n three", "a", "one,two,three"),
        ("a=ends\\\\\nb=2", "a", "ends\\"),
        ("a=last\\", "a", "last"),
        ("a=#not a comment", "a", "#not a comment"),
        ("a=grün", "a", "grün"),
    ],
)
def test_a_line_is_read_as_java_reads_it(text: str, key: str, value: str) -> None:
    assert values(text)[key] == value


def test_comments_and_blank_lines_are_ignored() -> None:
    assert values("# a=1\n! b=2\n\n   \n  # c=3\r\n") == {}


def test_bytes_that_are_not_utf_8_are_latin_1_and_a_byte_order_mark_is_no_key() -> None:
    assert parse(b"a=\xe9").entries[0].value == "é"
    assert parse(b"\xef\xbb\xbfa=1").entries[0].key == "a"


def test_blanks_after_a_value_are_cut_with_a_warning_that_names_the_line() -> None:
    parsed = parse(b"# first\nlistenPort = 9876 \n")
    assert parsed.entries[0].value == "9876"
    assert parsed.warnings == ["line 2: blanks after the value of listenPort are ignored"]


def test_a_repeated_key_is_warned_of() -> None:
    assert parse(b"a=1\na=2").warnings == ["line 2: a is set twice; this value counts"]


def test_many_keys_are_read_in_linear_time() -> None:
    """A request may bring 64 KiB of them, which block the server."""
    lines = b"".join(b"key%d = 1\n" % number for number in range(200_000))
    assert parse(lines + b"key7 = 2\n").warnings == ["line 200001: key7 is set twice; this value counts"]


def test_lines_are_counted_through_continuations() -> None:
    assert [entry.line for entry in parse(b"a=1\\\n2\nb=3").entries] == [1, 3]


def test_a_broken_unicode_escape_is_refused_as_in_java() -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse(b"a=1\nb=\\u00g1")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXT.filter(bool), TEXT.map(lambda text: text.rstrip(" \t\f"))))
def test_dumped_properties_are_read_back(given_values: dict[str, str]) -> None:
    assert values(dump(given_values)) == given_values
