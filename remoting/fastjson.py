"""A reader for the JSON that Java peers write with fastjson and fastjson2, which is not always legal JSON.

Beyond JSON it accepts bare integer keys `{0:"a"}`, object keys `{{"topic":"T"}:1}`, bare identifiers and
single quotes as keys or strings, and trailing commas. Invariant: reading ends in time and memory linear in the text, with a
value or FastJsonError, and nests no deeper than DEPTH_MAX. Pure.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import orjson

DEPTH_MAX = 128
NUMBER_CHARS_MAX = 400
REQUEST_DIALECT_MAX = 64 << 10
"""A request that is not strict JSON is read only up to this size. Each byte takes up to 3 µs and blocks the server."""
KEY_DIALECT_MAX = 4 << 10
READER_CHARACTERS_MAX = 16 << 10
"""Limit of text of strangers in which more than keys is no strict JSON. A character takes up to 0.5 us, in Java's text 0.05."""
"""The same for a map key: it has a topic, a broker name and a queue id."""

_SPACE = re.compile(r"[ \t\n\r\f\b]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.]*")
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/",
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
}  # fmt: skip
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_HEX2 = re.compile(r"[0-9a-fA-F]{2}")
_LONE_SURROGATE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
_BARE_KEY = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\Z)'  # a string: left as it is
    r'|(?<=[{,])((?:0|-?[1-9][0-9]{0,17}+)(?=:)|\{(?:[^{}"]|"(?:[^"\\]|\\.)*+")*+\}(?=:))',
    re.DOTALL,
)
"""Bare integers and flat objects as keys, in text without spaces around the keys, as Java writes it."""
_WORDS = {"true": True, "false": False, "null": None}


class FastJsonError(ValueError):
    """The text is neither JSON nor the dialect. `position` is the character at which reading failed."""

    def __init__(self, why: str, position: int) -> None:
        super().__init__(f"{why} at {position}")
        self.why = why
        self.position = position


def loads(data: bytes | bytearray | memoryview | str, *, dialect_max: int | None = None) -> Any:
    """The value that `data` encodes. Strict JSON is read by a fast parser. Other text is rejected if it is longer than
    `dialect_max` bytes. Bytes that are not UTF-8 become U+FFFD, as in Java's `new String(bytes, UTF_8)`.

    Keys become strings. An integer key becomes a decimal. An object used as key becomes its JSON text with sorted keys, so
    that both forms of a map keyed by MessageQueue read alike (`object_key`). Raises FastJsonError.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    if not isinstance(data, str) and "\ufffd" in (text := str(data, "utf-8", "replace")):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            data = text
    if dialect_max is not None and len(data) > dialect_max:
        raise FastJsonError(
            f"{len(data)} bytes that are not strict JSON, of which {dialect_max} are read,", 0
        )
    if not isinstance(data, str):
        data = str(data, "utf-8", "replace")
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(_BARE_KEY.sub(_quoted, data))
    if dialect_max is not None and len(data) > READER_CHARACTERS_MAX:
        raise FastJsonError(
            f"{len(data)} characters that Java would not write, of which {READER_CHARACTERS_MAX} are read,", 0
        )
    reader = _Reader(data)
    value = reader.value(reader.skip(0), 0)
    end = reader.skip(reader.position)
    if end != len(data):
        raise FastJsonError("more text after the value", end)
    return value


def pieces_in(data: bytes | bytearray | memoryview) -> int:
    """The number of members and elements in a JSON text, or more: marks in strings count, too."""
    content = bytes(data)
    return sum(map(content.count, (b",", b"[", b"{")))


def object_key(key: str) -> dict[str, Any]:
    """The object in a map key (`MessageQueue` keys, either form). Raises FastJsonError."""
    value = loads(key, dialect_max=KEY_DIALECT_MAX)
    if not isinstance(value, dict):
        raise FastJsonError("map key is not an object", 0)
    return value


def key_of(value: dict[str, Any]) -> str:
    """The map key for `value`: a JSON string holding the object."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _quoted(found: re.Match[str]) -> str:
    """A bare key as the string that `loads` makes of it. The expression matches strings too; they stay unchanged."""
    key = found[1]
    if key is None:
        return found[0]
    if key[0] == "{":
        key = key_of(orjson.loads(key))
    return orjson.dumps(key).decode()


class _Reader:
    """Recursive descent over one text; `position` is the end of the last value read. An object as key has no object as key
    inside, because each level of quotes would double the text."""

    __slots__ = ("in_key", "position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.in_key = False

    def skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        assert match is not None
        return match.end()

    def peek(self, at: int) -> str:
        return self.text[at : at + 1]

    def value(self, at: int, depth: int) -> Any:
        char = self.peek(at)
        if char == "{":
            return self.object(at, depth + 1)
        if char == "[":
            return self.array(at, depth + 1)
        if char in ('"', "'"):
            return self.string(at)
        if char == "-" or char.isdigit():
            return self.number(at)
        word = _WORD.match(self.text, at)
        if word is not None and word.group() in _WORDS:
            self.position = word.end()
            return _WORDS[word.group()]
        raise FastJsonError("no value", at)

    def object(self, at: int, depth: int) -> dict[str, Any]:
        if depth > DEPTH_MAX:
            raise FastJsonError("nested too deep", at)
        found: dict[str, Any] = {}
        at = self.skip(at + 1)
        while True:
            while self.peek(at) == ",":
                at = self.skip(at + 1)
            if self.peek(at) == "}":
                self.position = at + 1
                return found
            key = self.key(at, depth)
            at = self.skip(self.position)
            if self.peek(at) != ":":
                raise FastJsonError("no colon after the key", at)
            found[key] = self.value(self.skip(at + 1), depth)
            at = self.skip(self.position)
            if self.peek(at) not in (",", "}"):
                raise FastJsonError("no comma or } after the value", at)

    def array(self, at: int, depth: int) -> list[Any]:
        if depth > DEPTH_MAX:
            raise FastJsonError("nested too deep", at)
        found: list[Any] = []
        at = self.skip(at + 1)
        while True:
            while self.peek(at) == ",":
                at = self.skip(at + 1)
            if self.peek(at) == "]":
                self.position = at + 1
                return found
            found.append(self.value(at, depth))
            at = self.skip(self.position)
            if self.peek(at) not in (",", "]"):
                raise FastJsonError("no comma or ] after the value", at)

    def key(self, at: int, depth: int) -> str:
        char = self.peek(at)
        if char in ('"', "'"):
            return self.string(at)
        if char == "{":
            return self.object_as_key(at, depth + 1)
        if char == "-" or char.isdigit():
            number = self.number(at)
            if not isinstance(number, int):
                raise FastJsonError("a number that is not whole cannot be a key", at)
            return str(number)
        word = _WORD.match(self.text, at)
        if word is None:
            raise FastJsonError("no key", at)
        self.position = word.end()
        return word.group()

    def object_as_key(self, at: int, depth: int) -> str:
        if self.in_key:
            raise FastJsonError("an object as key inside another", at)
        self.in_key = True
        found = self.object(at, depth)
        self.in_key = False
        try:
            return key_of(found)
        except orjson.JSONEncodeError:
            raise FastJsonError("a number in a key is too big", at) from None

    def number(self, at: int) -> int | float:
        match = _NUMBER.match(self.text, at)
        if match is None:
            raise FastJsonError("no number", at)
        digits = match.group()
        if len(digits) > NUMBER_CHARS_MAX:
            raise FastJsonError("number too long", at)
        self.position = match.end()
        return float(digits) if match.group(1) or match.group(2) else int(digits)

    def string(self, at: int) -> str:
        quote = self.text[at]
        plain = _PLAIN[quote]
        parts: list[str] = []
        at += 1
        while True:
            run = plain.match(self.text, at)
            assert run is not None
            parts.append(run.group())
            at = run.end()
            char = self.peek(at)
            if char == quote:
                self.position = at + 1
                return _joined(parts)
            if char != "\\":
                raise FastJsonError(
                    "string does not end" if not char else "control character in a string", at
                )
            part, at = self.escape(at + 1)
            parts.append(part)

    def escape(self, at: int) -> tuple[str, int]:
        char = self.peek(at)
        if char in ("u", "x"):
            code = (_HEX4 if char == "u" else _HEX2).match(self.text, at + 1)
            if code is None:
                raise FastJsonError("escape without hexadecimal digits", at)
            return chr(int(code.group(), 16)), code.end()
        if char not in _ESCAPES or not char:
            raise FastJsonError("unknown escape", at)
        return _ESCAPES[char], at + 1


def _joined(parts: list[str]) -> str:
    """The string of `parts`, with surrogate pairs combined. A lone surrogate becomes `?`, as Java encodes it."""
    text = "".join(parts)
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        pass
    return _LONE_SURROGATE.sub("?", text).encode("utf-16", "surrogatepass").decode("utf-16")
