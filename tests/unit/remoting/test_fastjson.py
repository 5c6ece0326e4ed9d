"""The reader of Java's almost-JSON."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import fastjson
from remoting.fastjson import READER_CHARACTERS_MAX, FastJsonError, loads, object_key

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_plain_json_reads_as_a_strict_reader_reads_it(value: Any) -> None:
    text = orjson.dumps(value)
    assert loads(text) == orjson.loads(text)
    assert loads(b"{x:%s,}" % text) == {"x": orjson.loads(text)}  # so the tolerant parser reads it


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_text_gives_a_value_or_a_fastjson_error(data: bytes | str) -> None:
    with suppress(FastJsonError):
        loads(data)


DIALECT = [
    ('{0:"10.0.0.1:10911",2:"b"}', {"0": "10.0.0.1:10911", "2": "b"}),
    ("{-1:2}", {"-1": 2}),
    ("{'a':'it\\'s'}", {"a": "it's"}),
    ("{name:true,other_1:null}", {"name": True, "other_1": None}),
    ("[1,2,]", [1, 2]),
    ('{"a":1,}', {"a": 1}),
    ('"TopicTest@CG":1', None),
    ('{"TopicTest@CG":{0:12,1:7\n\t\t}}', {"TopicTest@CG": {"0": 12, "1": 7}}),
    ("{a:'\\u00e4\\ud83d\\ude00\\x41'}", {"a": "ä\U0001f600A"}),
    ("{a:-1.5e3}", {"a": -1500.0}),
]


@pytest.mark.parametrize(("text", "value"), DIALECT)
def test_the_dialect_is_read(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(FastJsonError):
            loads(text)
    else:
        assert loads(text) == value


KEYS = st.integers(-(2**60), 2**60) | st.dictionaries(
    st.text(max_size=3), st.integers(-(2**53), 2**53) | st.text(), max_size=3
)


def as_java_writes(key: Any, value: Any) -> bytes:
    return b"%b:%b" % (orjson.dumps(key), orjson.dumps(value))


@given(st.lists(st.tuples(KEYS, VALUES), max_size=4), st.text(alphabet='{},:"\\ 1a', max_size=12))
def test_bare_keys_read_the_same_with_spaces_about_them(rows: list[tuple[Any, Any]], tail: str) -> None:
    table = [as_java_writes(key, value) for key, value in rows if key != {}] + [as_java_writes("t", tail)]
    assert loads(b"{%b}" % b",".join(table)) == loads(b"{ %b }" % b" , ".join(table))


@given(st.text(alphabet='{},:"\\ 1a[', max_size=24))
def test_damaged_text_reads_the_same_with_insignificant_spaces(text: str) -> None:
    def read(text: str) -> Any:
        try:
            return loads(text)
        except FastJsonError:
            return FastJsonError

    assert read("{x:[" + text) == read("{ x:[" + text)


def test_an_object_as_key_reads_like_its_text_as_key() -> None:
    as_object = loads('{{"topic":"T","brokerName":"b","queueId":0}:{"maxOffset":9}}')
    as_text = loads('{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":{"maxOffset":9}}')
    assert as_object == as_text
    assert [object_key(key) for key in as_object] == [{"brokerName": "b", "queueId": 0, "topic": "T"}]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[", '{"a"', '{"a":', '{"a":1', "{a:b}", "{1.5:2}", '{"a":1}}', "'", "'\\", "'\\u12", "{a:NaN}",
        "{a:'\n'}", "{a:01}", "{a:+1}", "{:1}", "{a:'\\q'}",
    ],
)  # fmt: skip
def test_malformed_text_raises_a_fastjson_error(text: str) -> None:
    with pytest.raises(FastJsonError):
        loads(text)


def test_depth_and_numbers_have_limits() -> None:
    for text in ("[" * 100_000, "{a:" * 100_000, "{{" * 100_000, f"{{a:{'9' * 1000}}}"):
        with pytest.raises(FastJsonError):
            loads(text)


@pytest.mark.parametrize("begin", ["{'x':1,", "{'x':[{'y':1,"])
def test_object_keys_inside_object_keys_are_refused(begin: str) -> None:
    """Each level of quotes would double the text: a few bytes would take all memory, before anybody is asked who sent them."""
    for levels in (2, 3, 60):
        with pytest.raises(FastJsonError, match="an object as key inside another"):
            loads(begin + "{" * levels + "}" + ":1}" * levels)
    with pytest.raises(FastJsonError, match="an object as key inside another"):
        loads("{{a:[{b:{{c:1}:1}}]}:1}")
    assert loads("{x:1,{a:{b:1}}:2,{c:1}:{{d:1}:3}}") == {
        "x": 1,
        '{"a":{"b":1}}': 2,
        '{"c":1}': {'{"d":1}': 3},
    }


def test_a_number_that_is_too_big_for_a_key_is_refused() -> None:
    with pytest.raises(FastJsonError, match="a number in a key is too big"):
        loads("{x:1,{a:" + "9" * 30 + "}:1}")


def test_a_long_text_of_escapes_is_read_in_linear_time() -> None:
    text = "{a:'" + "\\n" * 200_000 + "'}"
    assert loads(text) == {"a": "\n" * 200_000}


@pytest.mark.parametrize("text", ['\\"', '"\\"', '{"', "{", '{a"\\"', "{1", ',{"a"', '{"a":"b"', '{"a""a"'])
def test_damaged_text_that_is_long_is_refused_in_linear_time(text: str) -> None:
    with pytest.raises(FastJsonError):
        loads('{"' + text * (1_000_000 // len(text)))


def test_an_object_key_of_another_kind_is_refused() -> None:
    with pytest.raises(FastJsonError):
        fastjson.object_key("[1]")
    with pytest.raises(FastJsonError, match="not strict JSON"):
        fastjson.object_key("{" + "a:1," * 2_000 + "}")


def test_long_text_of_strangers_is_read_only_as_java_writes_it() -> None:
    """Answers of many clients may come together, and each of these characters takes as long as ten of Java's text."""
    keys = ",".join(
        f'{{"brokerName":"b","queueId":{number},"topic":"T"}}:{number}' for number in range(2_000)
    )
    assert len(fastjson.loads("{" + keys + "}", dialect_max=1 << 20)) == 2_000
    quoted = "{'x':'" + "\\b" * READER_CHARACTERS_MAX + "'}"
    with pytest.raises(FastJsonError, match="Java would not write"):
        fastjson.loads(quoted, dialect_max=1 << 20)
    assert fastjson.loads(quoted) == {"x": "\b" * READER_CHARACTERS_MAX}
