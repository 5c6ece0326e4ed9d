"""Message properties in stored form: `key 0x01 value 0x02` pairs in UTF-8, with nothing escaped.

Invariant: a pair with an empty key or an empty value does not exist, and of two pairs with one key the last counts.
Bulk code never builds a dictionary: `last_value` finds one property in the raw bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqruntime.javahash import java_string_hash

NAME_VALUE_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"

TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TAGS_NAME, KEYS_NAME, UNIQ_KEY_NAME = TAGS.encode(), KEYS.encode(), UNIQ_KEY.encode()
TAGS_LED, KEYS_LED, UNIQ_KEY_LED = (
    PROPERTY_SEPARATOR + name + NAME_VALUE_SEPARATOR for name in (TAGS_NAME, KEYS_NAME, UNIQ_KEY_NAME)
)

SHORTEST_PAIR = 3


def parse_properties(raw: bytes | memoryview) -> dict[str, str]:
    """The pairs of `raw` in order of first appearance. Broken pairs are dropped, and bad UTF-8 is replaced."""
    pairs: dict[str, str] = {}
    for part in bytes(raw).decode("utf-8", "replace").split("\x02"):
        if len(part) < SHORTEST_PAIR:
            continue
        key, separator, value = part.partition("\x01")
        if key and separator and value:
            pairs[key] = value
    return pairs


def format_properties(pairs: Mapping[str, str]) -> bytes:
    """The stored form of `pairs`, with the final separator that 5.x brokers write."""
    return "".join(f"{key}\x01{value}\x02" for key, value in pairs.items() if key and value).encode()


def join_properties(own: bytes, batch: bytes) -> bytes:
    """A batch member's own properties followed by those of the whole batch, separated exactly once."""
    if own and batch and not own.endswith(PROPERTY_SEPARATOR):
        return own + PROPERTY_SEPARATOR + batch
    return own + batch


def last_value(raw: bytes, key: bytes) -> bytes:
    """The effective value of `key` (UTF-8), or b"" when there is none."""
    wanted = key + NAME_VALUE_SEPARATOR
    at = raw.rfind(wanted)
    while at >= 0:
        if at == 0 or raw[at - 1] == 2:
            start = at + len(wanted)
            end = raw.find(PROPERTY_SEPARATOR, start)
            value = raw[start:] if end < 0 else raw[start:end]
            if value:
                return value
        at = raw.rfind(wanted, 0, at)
    return b""


def dispatched_values(raw: bytes) -> tuple[bytes, bytes, bytes]:
    """The values of TAGS, UNIQ_KEY and KEYS as `last_value` finds them. Dispatch needs all three of every record."""
    led = PROPERTY_SEPARATOR + raw + PROPERTY_SEPARATOR
    find, rfind = led.find, led.rfind
    tag = unique = keys = b""
    if (at := rfind(TAGS_LED)) >= 0:
        start = at + len(TAGS_LED)
        tag = led[start : find(PROPERTY_SEPARATOR, start)] or last_value(raw, TAGS_NAME)
    if (at := rfind(UNIQ_KEY_LED)) >= 0:
        start = at + len(UNIQ_KEY_LED)
        unique = led[start : find(PROPERTY_SEPARATOR, start)] or last_value(raw, UNIQ_KEY_NAME)
    if (at := rfind(KEYS_LED)) >= 0:
        start = at + len(KEYS_LED)
        keys = led[start : find(PROPERTY_SEPARATOR, start)] or last_value(raw, KEYS_NAME)
    return tag, unique, keys


def tag_hash(tag: str) -> int:
    """The tagsCode of a tag; 0 for no tag. The whole text is hashed, even if it holds several tags."""
    return java_string_hash(tag) if tag else 0
