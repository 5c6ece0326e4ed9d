"""The columns of a record, with one row of the table for each: name, Arrow type, Spark type.

Arrow types are the exact ones that Spark accepts from a Python data source (timestamp in µs and UTC, no dictionary)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkreplay.errors import OptionError


@dataclass(frozen=True)
class Column:
    name: str
    arrow: pa.DataType
    spark: str


TIMESTAMP = pa.timestamp("us", tz="UTC")
COLUMNS = (
    Column("topic", pa.string(), "string"),
    Column("queue_id", pa.int32(), "int"),
    Column("queue_offset", pa.int64(), "bigint"),
    Column("tags", pa.string(), "string"),
    Column("keys", pa.string(), "string"),
    Column("msg_id", pa.string(), "string"),
    Column("body", pa.binary(), "binary"),
    Column("properties", pa.map_(pa.string(), pa.string()), "map<string,string>"),
    Column("properties_raw", pa.binary(), "binary"),
    Column("born_timestamp", TIMESTAMP, "timestamp"),
    Column("store_timestamp", TIMESTAMP, "timestamp"),
    Column("born_host", pa.string(), "string"),
    Column("store_host", pa.string(), "string"),
    Column("flag", pa.int32(), "int"),
    Column("sys_flag", pa.int32(), "int"),
    Column("transaction", pa.string(), "string"),
    Column("reconsume_times", pa.int32(), "int"),
    Column("prepared_transaction_offset", pa.int64(), "bigint"),
    Column("physical_offset", pa.int64(), "bigint"),
    Column("store_size", pa.int32(), "int"),
    Column("body_crc", pa.int32(), "int"),
    Column("epoch", pa.int32(), "int"),
    Column("row_id", pa.string(), "string"),
    Column("broker_name", pa.string(), "string"),
)
BY_NAME = {column.name: column for column in COLUMNS}
PRESETS = {
    "full": tuple(column.name for column in COLUMNS if column.name not in ("properties_raw", "row_id")),
    "meta": (
        "topic", "queue_id", "queue_offset", "born_timestamp", "store_timestamp", "sys_flag", "physical_offset",
        "store_size", "epoch",
    ),
    "default": (
        "topic", "queue_id", "queue_offset", "tags", "keys", "msg_id", "body", "born_timestamp", "store_timestamp",
        "physical_offset", "epoch", "broker_name",
    ),
}  # fmt: skip


def columns_named(text: str) -> tuple[str, ...]:
    """The columns of a preset or of a comma-separated list, in upper or lower case. Raises OptionError for an unknown
    column."""
    names = tuple(name.strip() for name in text.lower().split(",") if name.strip())
    if len(names) == 1 and names[0] in PRESETS:
        return PRESETS[names[0]]
    for name in names:
        if name not in BY_NAME:
            raise OptionError(
                "columns",
                f"no column {name!r}; a preset ({', '.join(PRESETS)}) or some of {', '.join(BY_NAME)}",
            )
    if not names:
        raise OptionError("columns", "is empty")
    if len(set(names)) < len(names):
        raise OptionError("columns", f"{text!r} names a column twice")
    return names


def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, BY_NAME[name].arrow) for name in names])


def spark_schema(names: tuple[str, ...]) -> str:
    """The columns as Spark DDL."""
    return ", ".join(f"{name} {BY_NAME[name].spark}" for name in names)
