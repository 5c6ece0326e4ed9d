"""Checks that the topics of a read exist. Without this check a misspelled topic would look like a topic without messages.

Invariant: a topic is missing only if it is not in the store's queues, not in the store's table of topics, and not in a record
up to the bound. The log is walked only for topics that are in neither queues nor table: deleted topics, and topics in partial
copies of a store."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress

from sparkreplay.errors import LogCorrupted, NotText, SegmentGone, StoreUnreadable, TopicMissing
from sparkreplay.read.knownoptions import nearest
from sparkreplay.read.options import ReadOptions
from sparkreplay.read.plan import plan
from sparkreplay.read.queueends import topics_seen
from sparkreplay.store.files import Files
from sparkreplay.store.queueentries import BATCH_FOLDER, FOLDER
from sparkreplay.store.snapshot import StoreSnapshot

TOPICS_FILE = "config/topics.json"
logger = logging.getLogger("sparkreplay")


def require_topics(options: ReadOptions, stores: Collection[StoreSnapshot]) -> None:
    """Raise TopicMissing for a topic that options name and no store has. With failOnMissingTopic=false a missing topic is only
    logged."""
    known = set[str]().union(*(known_topics(store.files) for store in stores))
    missing = named_topics(options) - known
    for store in stores:
        if missing:
            missing -= topics_of_log(store, missing)
    if not missing:
        return
    error = TopicMissing(sorted(missing), [store.root for store in stores], alike(sorted(missing), known))
    if options.fail_on_missing_topic:
        raise error
    logger.warning("%s", error)


def named_topics(options: ReadOptions) -> set[str]:
    """The topics in the option topic and in the JSON for the queues' ends."""
    return set(options.topics or ()) | set(options.starting.topics) | set(options.ending.topics)


def known_topics(files: Files) -> set[str]:
    """The topics that have queues or are in the table of topics. A copy of only the log has none."""
    known: set[str] = set()
    for folder in (FOLDER, BATCH_FOLDER):
        with suppress(FileNotFoundError):
            known |= {entry.name for entry in files.entries(folder) if entry.is_folder}
    with suppress(FileNotFoundError, StoreUnreadable, ValueError, AttributeError):
        known |= set(json.loads(files.read(TOPICS_FILE)).get("topicConfigTable", {}))
    return known


def topics_of_log(store: StoreSnapshot, topics: set[str]) -> set[str]:
    """The topics among `topics` that have a record. If the log cannot be read, all of `topics`: the read reports the error."""
    stretches = plan(store, store.min_offset, max(store.bound, store.committed or 0))
    try:
        return topics_seen(store.files, stretches, topics)
    except (LogCorrupted, NotText, SegmentGone):
        return topics


def alike(missing: Iterable[str], known: set[str]) -> str:
    hints = [nearest(topic, sorted(known)) for topic in missing] if known else []
    return " ".join(hint for hint in hints if hint.startswith("did you mean"))
