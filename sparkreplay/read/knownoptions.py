"""Every option of the data source: its name, the values it takes, its default and what it does.

Invariant: this is the only list of options. Other options are rejected, and a test compares the table in docs/spark.md with
this list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from sparkreplay.errors import OptionError


@dataclass(frozen=True)
class Option:
    """One option, as in its row of docs/spark.md. `default` is empty if there is none."""

    name: str
    values: str
    default: str
    meaning: str


OPTIONS = (
    Option("path", "a store, or a JSON list of stores; also through `load(...)`", "", "`storePathRootDir` of a broker. If "
           "several stores are replicas of one broker set, one is read. Several broker sets become one DataFrame"),
    Option("address", "`host:port`, semicolon between", "", "running brokers of the store's set: the first that answers "
           "reports the bound, and its epochs are compared with the store's"),
    Option("topic", "names, comma between", "", "only these topics"),
    Option("topicPattern", "regular expression", "", "only topics whose whole name matches; not together with `topic`"),
    Option("queues", "queue ids, comma between", "", "only these queues of each topic"),
    Option("includeSystemTopics", "`true`, `false`", "`false`", "also the brokers' own topics, such as those of delayed "
           "messages and open transactions"),
    Option("transactions", "`committed`, `all`", "`committed`", "`all`: also prepared and rolled back records"),
    Option("startingOffsets", "`earliest`, a physical offset, JSON per queue, or `latest`", "`earliest`", "where to begin; "
           "`latest`, for streams only, is the committed bound"),
    Option("endingOffsets", "`confirmed`, `latest`, a physical offset, or JSON per queue", "`confirmed`", "where to end "
           "(exclusive), never above the committed bound; `latest` reads to the end of the log and needs `allowUncommitted`"),
    Option("startingOffsetsByTimestamp", "JSON per queue", "", "per queue the first message stored at or after this time "
           "(ms); overrides `startingOffsets`"),
    Option("endingOffsetsByTimestamp", "JSON per queue", "", "per queue up to the first message stored at or after this "
           "time (ms); overrides `endingOffsets`"),
    Option("startingTimestamp", "ms since 1970", "", "the same time for every queue; overrides `startingOffsets` and "
           "`startingOffsetsByTimestamp`"),
    Option("endingTimestamp", "ms since 1970", "", "the same time for every queue; overrides `endingOffsets` and "
           "`endingOffsetsByTimestamp`, but `latest` still reads beyond the bound"),
    Option("startingOffsetsByTimestampStrategy", "`error`, `latest`", "`error`", "if a queue (with JSON) or "
           "a log has no message from the starting time on: fail, or read nothing of it"),
    Option("failOnDataLoss", "`true`, `false`", "`true`", "fail when messages that were asked for were deleted by retention or "
           "are beyond the end; `false`: read the rest and log a warning"),
    Option("failOnMissingTopic", "`true`, `false`", "`true`", "fail when a topic that `topic` or JSON names is in no store; "
           "`false`: log a warning, and a stream waits for it"),
    Option("holdLog", "`true`, `false`", "`false`", "ask the broker to keep what is still to be read, by a lease in the "
           "store's folder"),
    Option("allowUncommitted", "`true`, `false`", "`false`", "permit rows that a failover may take back"),
    Option("columns", "`default`, `meta`, `full`, or names, comma between", "`default`", "which columns, in this order; "
           "fewer columns are read faster"),
    Option("includeProperties", "`true`, `false`", "`false`", "add `properties` to the columns of a preset"),
    Option("decompress", "`true`, `false`", "`true`", "open compressed bodies; `false` returns them as they are stored"),
    Option("crc", "`true`, `record`, `false`", "`false`", "check the CRC of every body that becomes a row; `record`: also the "
           "CRC of the whole record, if it has one"),
    Option("mode", "`failfast`", "`failfast`", "damage below the bound fails the job; nothing is ever skipped"),
    Option("index", "`walk`, `consumequeue`", "`walk`", "how a batch finds records: by walking the log, or through the "
           "consume queues"),
    Option("storeTimesOrdered", "`true`, `false`", "`false`", "you state that store times never decrease, so segments "
           "outside the times are skipped; refused if segments contradict it"),
    Option("splitBytes", "bytes, or `64k`, `128m`, `1g`", "`256m`", "size of a partition"),
    Option("minPartitions", "a number", "", "split further, into about this many partitions, at most 10000"),
    Option("maxBytesPerTrigger", "bytes, or `64k`, `512m`, `1g`", "", "streams only: a batch takes about so much of the log"),
    Option("maxOffsetsPerTrigger", "a number", "", "streams only: a batch takes so many messages of the log, counted before "
           "any is filtered out"),
    Option("minOffsetsPerTrigger", "a number", "", "streams only: wait until this many messages are there"),
    Option("maxTriggerDelay", "`500ms`, `30s`, `15m`, `1h`", "`15m`", "streams only: how long `minOffsetsPerTrigger` waits"),
)  # fmt: skip
PATHS = "paths"
"""The option in which Spark passes several paths of `load([...])`, as JSON."""
ELSEWHERE = {
    "subscribe": "topic", "subscribepattern": "topicPattern", "assign": "topic and queues", "includeheaders":
    "includeProperties", "kafka.bootstrap.servers": "path", "nameserver": "path", "pullbatchsize": "maxBytesPerTrigger",
}  # fmt: skip
"""Names that the connectors of Kafka and RocketMQ have for some options."""
KNOWN = {option.name.lower(): option for option in OPTIONS}


def normalized(given: Mapping[str, str]) -> dict[str, str]:
    """The options by lower-case name. Raises OptionError for an unknown option, and names the nearest known option."""
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() == PATHS:
            name = "path"
        if name.lower() in options:
            raise OptionError(name, "is given twice")
        if name.lower() not in KNOWN:
            known = ELSEWHERE.get(name.lower())
            here = f"here it is {known}" if known else nearest(name, (option.name for option in OPTIONS))
            raise OptionError(name, f"is unknown; {here}")
        options[name.lower()] = value
    return options


def nearest(name: str, names: Iterable[str]) -> str:
    """The text `did you mean X?`, or a list of all options if none is similar."""
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else f"there are {', '.join(by_lower.values())}"
