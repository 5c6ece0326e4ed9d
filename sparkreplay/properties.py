"""Properties text (`name \\x01 value \\x02` ...) as Arrow columns; the last of several equal names counts, as in Java."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def property_column(properties: pa.Array, name: str) -> pa.Array:
    """The value of one property a row; null where it is absent or empty."""
    pattern = f"(?s)^(?:.*\x02)?{name}\x01(?P<value>[^\x02]+)"
    return pc.extract_regex(properties, pattern).field("value")


def property_map(properties: pa.Array) -> pa.Array:
    """map<string, string> a row. Pieces without a name, a value or the \\x01 between them are dropped, as Java does."""
    pieces = pc.split_pattern(properties, "\x02")
    flat = pieces.flatten()
    parents = np.asarray(pc.list_parent_indices(pieces))
    good = np.asarray(pc.match_substring_regex(flat, "(?s)^[^\x01]+\x01."))
    halves = pc.split_pattern(flat.filter(pa.array(good)), "\x01", max_splits=1).flatten()
    parents = parents[good]
    names, values = (
        halves.take(pa.array(np.arange(0, len(halves), 2))),
        halves.take(pa.array(np.arange(1, len(halves), 2))),
    )
    keep = last_of_each(parents, names)
    if len(keep) != len(names):
        parents, names, values = parents[keep], names.take(pa.array(keep)), values.take(pa.array(keep))
    offsets = np.zeros(len(properties) + 1, np.int32)
    np.cumsum(np.bincount(parents, minlength=len(properties)), out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def last_of_each(parents: np.ndarray, names: pa.Array) -> np.ndarray:
    """Indices that stay when of equal names in one row only the last does."""
    if not len(names):
        return np.arange(0)
    dictionary = names.dictionary_encode()
    codes = parents.astype(np.int64) * len(dictionary.dictionary) + np.asarray(dictionary.indices)
    _, from_the_end = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - from_the_end)
