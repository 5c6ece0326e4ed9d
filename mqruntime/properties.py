"""The text format of java.util.Properties, which upstream's configuration files are written in.

Invariant: `parse(dump(values))` gives the same keys and values, except blanks at the end of a value: those are cut, with a
warning. Java keeps them and then silently ignores the setting. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class PropertyLine:
    """One `key = value` and the line, counted from 1, that it starts on."""

    key: str
    value: str
    line: int
    in_xml_comment: bool = False
    """Between `<!--` and `-->`, as the licence at the top of upstream's samples. To Java it is a setting all the same."""


@dataclass(slots=True)
class Properties:
    """A file's settings in its order; a repeated key stays listed and its last value counts."""

    entries: list[PropertyLine] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class PropertiesError(ValueError):
    """A line that Java rejects too: a broken \\uXXXX escape."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


def parse(data: bytes) -> Properties:
    """Properties of a file's bytes: ISO-8859-1, unless the whole of it is valid UTF-8."""
    found, keys = Properties(), set[str]()
    in_xml_comment = False
    for line, text in _logical_lines(_decode(data)):
        key, value = _split(text)
        key, value = _unescape(key, line), _unescape(value, line)
        trimmed = value.rstrip(BLANKS)
        if trimmed != value:
            found.warnings.append(f"line {line}: blanks after the value of {key} are ignored")
        in_xml_comment |= key.startswith("<!--")
        if not in_xml_comment and key in keys:
            found.warnings.append(f"line {line}: {key} is set twice; this value counts")
        keys.add(key)
        found.entries.append(PropertyLine(key, trimmed, line, in_xml_comment))
        in_xml_comment &= not (key.endswith("-->") or trimmed.endswith("-->"))
    return found


def dump(values: dict[str, str]) -> str:
    """`key=value` lines in the dictionary's order, ASCII only, as Properties.store escapes them."""
    return "".join(f"{_escape(key, ' ')}={_escape(value, '')}\n" for key, value in values.items())


def _decode(data: bytes) -> str:
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of each line with a setting, continuations joined."""
    held = ""
    first = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        part = natural.lstrip(BLANKS)
        if not first:
            if not part or part[0] in "#!":
                continue
            first = number
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2:
            held += part[:-1]
            continue
        yield first, held + part
        held, first = "", 0
    if first:
        yield first, held


def _split(text: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first unescaped `=`, `:` or blank."""
    end = 0
    while end < len(text) and text[end] not in "=:" + BLANKS:
        end += 2 if text[end] == "\\" else 1
    rest = text[end:].lstrip(BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANKS)
    return text[:end], rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    units: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise PropertiesError(line, f"\\u{digits} is not \\u and four hexadecimal digits")
                char = chr(int(digits, 16))
                at += 4
            else:
                char = ESCAPES.get(char, char)
        units.append(char)
    # \uD83D\uDE00 is one character written as a surrogate pair
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(text: str, blanks: str) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        if char in "\\=:#!" or (char == " " and (blanks or at == 0)):
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        elif char in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        else:
            encoded = char.encode("utf-16-be", "surrogatepass")
            out.extend(f"\\u{encoded[i : i + 2].hex().upper()}" for i in range(0, len(encoded), 2))
    return "".join(out)
