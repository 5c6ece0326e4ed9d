"""Options of a table in Spark's catalog: `CREATE TABLE ... USING rocketmq OPTIONS (...)`, `spark.catalog.createTable`.

Spark asks a source for the schema of a new table, and passes everything that it will store for the table (V2SessionCatalog,
CatalogV2Util.convertTableProperties). It passes each option of OPTIONS twice, as `topic` and as `option.topic`; the path as
`path` and `location`; its own properties such as `owner`; and TBLPROPERTIES under their plain names. When the table is read,
Spark passes none of these, so the schema's metadata keeps them.

Invariant: an option that the source would not apply is rejected, never dropped. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sparkreplay.errors import OptionError
from sparkreplay.read.knownoptions import KNOWN, PATHS

SOURCE = "rocketmq"
PREFIX = "option."
METADATA = "rocketmq.options"
"""Key of the options in the metadata of a table's first column."""


def is_table(given: Mapping[str, str]) -> bool:
    """Whether Spark asks about a new table of its catalog. Only then do the options contain a provider."""
    return lowered(given).get("provider", "").lower() == SOURCE


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options of OPTIONS and LOCATION among all that Spark stores for a table. Raises OptionError if an option of this
    source is in TBLPROPERTIES, where it would have no effect."""
    properties = lowered(given)
    options = lowered(
        {name.removeprefix(PREFIX): value for name, value in properties.items() if name.startswith(PREFIX)}
    )
    place = properties.get("path") or properties.get("location")
    if place and "path" not in options:
        options["path"] = place
    for name in properties.keys() & KNOWN.keys() - options.keys():
        raise OptionError(
            KNOWN[name].name, "is a table property, which is not read; write it in OPTIONS (...)"
        )
    return options


def lowered(given: Mapping[str, str]) -> dict[str, str]:
    """The options by lower-case name. Several paths also count as an option `path`, unless both are there."""
    options = {name.lower(): value for name, value in given.items()}
    if PATHS in options and "path" not in options:
        options["path"] = options.pop(PATHS)
    return options
