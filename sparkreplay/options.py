"""What a read was asked for: options of the data source and of the command, checked once, on the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sparkreplay.errors import OptionError
from sparkreplay.plan import SPLIT_BYTES
from sparkreplay.schema import columns_named

SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class ReadOptions:
    """A frozen request. `end` is None for the committed bound."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    start: int | None = None
    end: int | None = None
    committed_only: bool = True
    system_topics: bool = False
    check_crc: bool = False
    split_bytes: int = SPLIT_BYTES


KNOWN = {
    "path": "the broker's storePathRootDir",
    "columns": "full, meta, or names separated by commas",
    "topic": "topics separated by commas; default all but the system's",
    "queues": "queue ids separated by commas",
    "startingoffsets": "earliest, or a physical offset where a record begins",
    "endingoffsets": "confirmed, or a physical offset at or below it",
    "transactions": "committed (default) or all",
    "includesystemtopics": "true or false (default)",
    "crc": "true to check every body's CRC, or false (default)",
    "splitbytes": "size of a split, for example 128m",
}


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Raises OptionError for an unknown name, a missing path, or a value that cannot be used."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in KNOWN:
            raise OptionError(name, f"is unknown; the options are {', '.join(KNOWN)}")
    if not options.get("path"):
        raise OptionError("path", f"is missing: {KNOWN['path']}")
    return ReadOptions(
        paths=store_paths(options["path"]),
        columns=columns_named(options.get("columns", "full")),
        topics=names(options.get("topic")),
        queues=frozenset(number("queues", text) for text in names(options["queues"]) or ())
        if "queues" in options
        else None,
        start=offset("startingOffsets", options.get("startingoffsets", "earliest"), "earliest"),
        end=offset("endingOffsets", options.get("endingoffsets", "confirmed"), "confirmed"),
        committed_only=choice("transactions", options.get("transactions", "committed"), ("committed", "all"))
        == "committed",
        system_topics=flag("includeSystemTopics", options.get("includesystemtopics", "false")),
        check_crc=flag("crc", options.get("crc", "false")),
        split_bytes=size("splitBytes", options.get("splitbytes", str(SPLIT_BYTES))),
    )


def store_paths(text: str) -> tuple[str, ...]:
    """One path, or a JSON list of them as Spark's `load([...])` hands it over."""
    paths = json.loads(text) if text.startswith("[") else [text]
    return tuple(path.removeprefix("file://") for path in paths)


def names(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise OptionError(option, f"{text!r} is not a whole number")
    return int(text)


def offset(option: str, text: str, keyword: str) -> int | None:
    return None if text.lower() == keyword else number(option, text)


def choice(option: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise OptionError(option, f"{text!r} is none of {', '.join(allowed)}")
    return text


def flag(option: str, text: str) -> bool:
    return choice(option, text.lower(), ("true", "false")) == "true"


def size(option: str, text: str) -> int:
    unit = text[-1:].lower() if text[-1:].isalpha() else ""
    if unit not in SIZE_UNITS or not text.removesuffix(text[-1:] if unit else "").isdecimal():
        raise OptionError(option, f"{text!r} is no size; write bytes, or for example 64k, 128m, 1g")
    value = int(text[:-1] if unit else text) * SIZE_UNITS[unit]
    if value < 4096:
        raise OptionError(option, "is below 4096 bytes")
    return value
