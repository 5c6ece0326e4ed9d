"""mqreplay package: writes the reader as one archive for executors."""

from __future__ import annotations

import zipfile

import click

from sparkreplay.commands.shared import print_json, require_file_place
from sparkreplay.engine.package import write_package
from sparkreplay.errors import OptionError


@click.command()
@click.option("--to", "target", required=True, metavar="FILE.zip", help="The archive to write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(target: str, as_json: bool) -> None:
    """The archive that spark-submit --py-files takes: the reader, for workers that have only numpy and pyarrow."""
    if not target.endswith(".zip"):
        raise OptionError("--to", f"{target} does not end in .zip, by which Spark knows an archive")
    require_file_place("--to", target)
    path = write_package(target)
    with zipfile.ZipFile(path) as archive:
        modules = len(archive.namelist())
    if as_json:
        print_json({"archive": str(path), "modules": modules, "bytes": path.stat().st_size})
        return
    print(f"{path}: {modules} modules, {path.stat().st_size:,} bytes")
    print(f"use it so: spark-submit --py-files {path} JOB.py")
