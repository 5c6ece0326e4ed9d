"""mqreplay resend: a topic's committed messages, sent again into a live cluster."""

from __future__ import annotations

import os
from dataclasses import astuple
from functools import partial
from hashlib import sha256
from typing import Any

import click

from mqruntime.hostports import addresses_in
from sparkreplay.commands.shared import (
    describe,
    engine_of,
    in_processes,
    options_of,
    planned,
    print_json,
    print_source,
    reading_options,
    require_file_place,
    size_of,
    stores_argument,
    warn,
)
from sparkreplay.engine.progress import progress, size_text
from sparkreplay.errors import OptionError
from sparkreplay.read.options import size
from sparkreplay.resend.job import ResendJob, only_run, prepare, rows_by, send_share
from sparkreplay.resend.rewrite import ROW_COLUMNS
from sparkreplay.resend.run import ResendCounts, WorkerShare

SPARK_WORKERS = 2
NAME_LETTERS_MAX = 180
"""Limit of a ledger's name. File systems allow 255 bytes for the name and the suffixes that workers add."""


@click.command()
@stores_argument
@click.option("--to", required=True, metavar="CLUSTER/TOPIC", help="An existing topic of a running cluster.")
@click.option(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    metavar="HOST:PORT",
    help="The target's name servers, or NAMESRV_ADDR.",
)
@click.option(
    "--ledger", metavar="FILE", help="Where progress is kept.  [default: resend-TOPIC-to-CLUSTER-TOPIC.json]"
)
@click.option("--rate", metavar="SIZE", help="Limit of body bytes a second, for example 10m.")
@click.option("--messages-per-second", type=click.IntRange(1), help="Limit of messages a second.")
@click.option(
    "--patience",
    default=120,
    show_default=True,
    type=click.IntRange(1),
    help="Seconds to try one message.",
)
@click.option("--force", is_flag=True, help="Even into the topic and broker set that the messages come from.")
@reading_options
@in_processes(
    workers="Share the queues among so many processes.  [default: 1, with Spark 2]", in_spark_too=True
)
def command(
    stores: tuple[str, ...],
    to: str,
    namesrv: str | None,
    ledger: str | None,
    rate: str | None,
    messages_per_second: int | None,
    patience: int,
    force: bool,
    engine: str,
    master: str,
    spark_conf: dict[str, str],
    workers: int | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Send the messages of one --topic again, each queue in its order.

    Keys, tags, properties, flag, compression and time of birth stay; REPLAY_SRC, REPLAY_QUEUE and REPLAY_EPOCH name a
    message's former place. Acknowledged messages are recorded in the ledger: the same command continues where it was killed,
    or with newly committed messages, and prints how many messages may be there twice. Delayed messages are sent once they
    were delivered, and at once; of transactions the committed ones."""
    cluster, separator, to_topic = to.partition("/")
    if not (cluster and separator and to_topic) or "/" in to_topic:
        raise OptionError("--to", f"{to!r} is not CLUSTER/TOPIC, for example DefaultCluster/orders-again")
    topic = given["topic"]
    if not topic or "," in topic:
        raise OptionError("--topic", "names the one topic to send; run the command once for each")
    if not namesrv:
        raise OptionError(
            "--namesrv", "is missing, and NAMESRV_ADDR is not set: name the target's name servers"
        )
    try:
        addresses_in(namesrv)
    except ValueError as error:
        raise OptionError("--namesrv", str(error)) from None
    count = workers or (SPARK_WORKERS if engine == "spark" else 1)
    options = options_of(stores, **given)
    kept = default_ledger(topic, cluster, to_topic) if ledger is None else ledger
    require_file_place("--ledger", kept)
    read = planned(options, columns=",".join(ROW_COLUMNS), transactions="committed", decompress="false")
    job = prepare(
        ResendJob(
            read,
            topic,
            cluster,
            to_topic,
            namesrv,
            os.path.realpath(kept),
            messages_per_second / count if messages_per_second else None,
            size("--rate", rate) / count if rate else None,
            patience,
            rows_by(options),
        ),
        force=force,
    )
    found: list[ResendCounts] = []
    log_bytes = sum(map(size_of, read.stretches))
    with only_run(job, count):
        if not as_json:
            for source in read.sources:
                print_source(source)
            print(f"to         {cluster}/{to_topic} at {namesrv}, ledger {job.ledger}")
        with progress("resend", log_bytes, quiet=quiet or as_json) as shown:
            if count == 1 and engine == "local":
                found.append(send_share(job, on_progress=shown.advance))
            else:
                with engine_of(engine, master, count, spark_conf) as workplace:
                    workplace.run(
                        partial(send_numbered, job, count),
                        range(count),
                        lambda number, counts: found.append(counts),
                    )
    print_result(job, read_summary(found), as_json)


def send_numbered(job: ResendJob, count: int, number: int) -> ResendCounts:
    return send_share(job, WorkerShare(number, count))


def read_summary(found: list[ResendCounts]) -> ResendCounts:
    return ResendCounts(*(sum(each) for each in zip(*map(astuple, found), strict=True)))


def print_result(job: ResendJob, counts: ResendCounts, as_json: bool) -> None:
    if not counts.acknowledged + counts.acknowledged_before:
        warn(f"what was read holds no message of topic {job.topic}")
    if as_json:
        print_json(
            {
                "stores": [describe(source) for source in job.read.sources],
                "topic": job.topic,
                "target": f"{job.cluster}/{job.to_topic}",
                "ledger": job.ledger,
                "acknowledged": counts.acknowledged,
                "bytes": counts.bytes,
                "acknowledged_before": counts.acknowledged_before,
                "maybe_twice": counts.maybe_twice,
                "maybe_twice_before": counts.maybe_twice_before,
            }
        )
        return
    before = f"; {counts.acknowledged_before:,} were by earlier runs" if counts.acknowledged_before else ""
    print(
        f"resend is done: {counts.acknowledged:,} messages, {size_text(counts.bytes)} of bodies acknowledged{before}"
    )
    if twice := counts.maybe_twice + counts.maybe_twice_before:
        warn(
            f"{job.to_topic} may hold {twice:,} messages too many: they were sent again where a sending had ended without an "
            "answer; REPLAY_SRC identifies copies of one message"
        )


def default_ledger(topic: str, cluster: str, to_topic: str) -> str:
    """The default name of the ledger. It has a hash if the names in it are too long for a file's name."""
    name = f"resend-{plain(topic)}-to-{plain(cluster)}-{plain(to_topic)}"
    if len(name) > NAME_LETTERS_MAX:
        name = (
            f"{name[:NAME_LETTERS_MAX]}~{sha256(f'{topic} {cluster} {to_topic}'.encode()).hexdigest()[:16]}"
        )
    return f"{name}.json"


def plain(name: str) -> str:
    """The name in a form that can be part of a file name."""
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in name
    )
