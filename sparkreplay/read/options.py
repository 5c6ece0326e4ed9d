"""The request of a read, made of the options of the data source or of a command. Options are checked once, on the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from messagestore.systemtopics import is_system_topic
from sparkreplay.errors import OptionError
from sparkreplay.read.knownoptions import normalized
from sparkreplay.read.offsets import (
    QUEUE_ID_MAX,
    VALUE_MAX,
    Edge,
    PerQueue,
    ending_edge,
    require_utf8,
    starting_edge,
    whole_number,
)
from sparkreplay.read.plan import SPLIT_BYTES
from sparkreplay.records.schema import PRESETS, columns_named

SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SPLIT_BYTES_MIN = 4096


@dataclass(frozen=True)
class ReadOptions:
    """A frozen request; sparkreplay.read.knownoptions describes the options."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    address: str | None = None
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[int] | None = None
    starting: Edge = field(default=Edge())
    ending: Edge = field(default=Edge())
    to_latest: bool = False
    unmatched_start_fails: bool = True
    fail_on_data_loss: bool = True
    fail_on_missing_topic: bool = True
    hold_log: bool = False
    allow_uncommitted: bool = False
    committed_only: bool = True
    system_topics: bool = False
    check_crc: bool = False
    check_record_crc: bool = False
    decompress: bool = True
    use_index: bool = False
    store_times_ordered: bool = False
    split_bytes: int = SPLIT_BYTES
    min_partitions: int = 1


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The request that the options give. Raises OptionError for an unknown name, a missing path, an unusable value, or a
    contradiction."""
    options = normalized(given)
    ending = options.get("endingoffsets", "confirmed")
    choice("mode", options.get("mode", "failfast"), ("failfast",))
    crc = choice("crc", options.get("crc", "false"), ("true", "record", "false"))
    read = ReadOptions(
        paths=store_paths(options.get("path", "")),
        columns=chosen_columns(options),
        address=options.get("address"),
        topics=names("topic", options.get("topic")),
        topic_pattern=pattern(options.get("topicpattern")),
        queues=queue_ids(options.get("queues")),
        starting=starting_edge(
            options.get("startingoffsets", "earliest"),
            options.get("startingoffsetsbytimestamp"),
            options.get("startingtimestamp"),
        ),
        ending=ending_edge(ending, options.get("endingoffsetsbytimestamp"), options.get("endingtimestamp")),
        to_latest=ending.lower() == "latest",
        unmatched_start_fails=choice(
            "startingOffsetsByTimestampStrategy",
            options.get("startingoffsetsbytimestampstrategy", "error"),
            ("error", "latest"),
        )
        == "error",
        fail_on_data_loss=flag("failOnDataLoss", options, default=True),
        fail_on_missing_topic=flag("failOnMissingTopic", options, default=True),
        hold_log=flag("holdLog", options),
        allow_uncommitted=flag("allowUncommitted", options),
        committed_only=choice("transactions", options.get("transactions", "committed"), ("committed", "all"))
        == "committed",
        system_topics=flag("includeSystemTopics", options),
        check_crc=crc != "false",
        check_record_crc=crc == "record",
        decompress=flag("decompress", options, default=True),
        use_index=choice("index", options.get("index", "walk"), ("walk", "consumequeue")) == "consumequeue",
        store_times_ordered=flag("storeTimesOrdered", options),
        split_bytes=size("splitBytes", options.get("splitbytes", str(SPLIT_BYTES))),
        min_partitions=at_least_one("minPartitions", options.get("minpartitions", "1")),
    )
    require_consistent(read)
    return read


def require_consistent(read: ReadOptions) -> None:
    if read.topics is not None and read.topic_pattern is not None:
        raise OptionError("topicPattern", "does not go together with topic; give one of them")
    if read.use_index and not read.committed_only:
        raise OptionError(
            "index", "consume queues hold no prepared and rolled back records: leave transactions=all out"
        )
    if read.to_latest and not read.allow_uncommitted:
        raise OptionError(
            "endingOffsets",
            "latest reads rows that a failover may take back: give allowUncommitted=true as well, or read up to confirmed",
        )
    start, end = read.starting, read.ending
    for option, edge in (("startingOffsets", start), ("endingOffsets", end)):
        if edge.physical_offset is not None and len(read.paths) > 1:
            raise OptionError(
                option, "a physical offset belongs to one log: give one path, or JSON per queue, or a time"
            )
        require_selected(option, edge.per_queue, read)
    if start.timestamp is not None and end.timestamp is not None and start.timestamp > end.timestamp:
        raise OptionError("endingTimestamp", f"{end.timestamp} is before startingTimestamp {start.timestamp}")


def require_selected(option: str, named: PerQueue, read: ReadOptions) -> None:
    """Raise OptionError for a queue that JSON names and other options exclude."""
    for queue in named:
        if read.topics is not None and queue.topic not in read.topics:
            raise OptionError(option, f"names topic {queue.topic}, which option topic leaves out")
        if read.topics is None and not read.system_topics and is_system_topic(queue.topic):
            raise OptionError(
                option, f"names topic {queue.topic}, one of the brokers' own; give includeSystemTopics=true"
            )
        if read.topic_pattern is not None and not re.fullmatch(read.topic_pattern, queue.topic):
            raise OptionError(option, f"names topic {queue.topic}, which topicPattern leaves out")
        if read.queues is not None and queue.queue_id not in read.queues:
            raise OptionError(
                option, f"names queue {queue.topic}/{queue.queue_id}, which option queues leaves out"
            )


def store_paths(text: str) -> tuple[str, ...]:
    """The paths: one path, or a JSON list of paths from Spark's `load([...])`. A comma is part of a name."""
    if not text:
        raise OptionError("path", "is missing; name a broker's storePathRootDir")
    if not text.startswith("["):
        return (text,)
    try:
        paths = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError("path", f"begins as a JSON list, but is none: {error}") from None
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise OptionError("path", f"{text} is no JSON list of paths")
    return tuple(paths)


def chosen_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    columns = columns_named(options.get("columns", "default"))
    if not flag("includeProperties", options) or "properties" in columns:
        return columns
    if columns not in PRESETS.values():
        raise OptionError(
            "includeProperties", "is for presets; write properties among the names of columns instead"
        )
    return (*columns, "properties")


def names(option: str, text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    found = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise OptionError(option, "names nothing; leave it out to read all")
    for name in found:
        require_utf8(option, name)
    return found


def queue_ids(text: str | None) -> frozenset[int] | None:
    parts = names("queues", text)
    if parts is None:
        return None
    return frozenset(whole_number("queues", part, QUEUE_ID_MAX) for part in parts)


def at_least_one(option: str, text: str) -> int:
    number = whole_number(option, text)
    if number < 1:
        raise OptionError(option, f"{number} is too few; 1 is the least")
    return number


def pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionError("topicPattern", f"{text!r} is no regular expression: {error}") from None
    return text


def choice(option: str, text: str, allowed: tuple[str, ...]) -> str:
    if text.lower() not in allowed:
        raise OptionError(option, f"{text!r} is none of {', '.join(allowed)}")
    return text.lower()


def flag(option: str, options: Mapping[str, str], default: bool = False) -> bool:
    text = options.get(option.lower())
    return default if text is None else choice(option, text, ("true", "false")) == "true"


def size(option: str, text: str) -> int:
    """A number of bytes. `k`, `m` and `g` are powers of 1024."""
    digits, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if unit not in SIZE_UNITS or not (digits.isascii() and digits.isdecimal()):
        raise OptionError(option, f"{text!r} is no size; write bytes, or for example 64k, 128m, 1g")
    value = whole_number(option, digits) * SIZE_UNITS[unit]
    if value > VALUE_MAX:
        raise OptionError(option, f"{text} is more than there can be; {VALUE_MAX} bytes is the most")
    if value < SPLIT_BYTES_MIN:
        raise OptionError(option, f"is below {SPLIT_BYTES_MIN} bytes")
    return value
