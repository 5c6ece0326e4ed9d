"""Write the generated pages of docs/. With --check only report which pages are out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from accesscontrol import figures as access_figures
from broker.exporter import figures as broker_figures
from broker.exporter import groupfigures as group_figures
from broker.settings.broker import BrokerSettings
from controller import figures as controller_figures
from controller.settings import ControllerSettings
from mqruntime import networkfigures
from mqruntime.figures import Figure
from mqruntime.settingstable import markdown_table
from namesrv import figures as namesrv_figures
from namesrv.settings import NamesrvSettings
from scripts.events import Event, events_of
from simulation.cluster import shape
from simulation.controllers import world as controllers
from simulation.groups import members as groups
from simulation.kernel.features import Feature, Features
from simulation.pairs import members as pairs
from simulation.raft import world as raft

DOCS = Path(__file__).parent.parent / "docs"

CONFIGURATION = """# Configuration

Written by `scripts/pages` from the settings classes; a test fails when it is out of date.

The servers take RocketMQ's properties files with `-c FILE`, and `KEY=VALUE` after it, which has precedence. `-p` prints the
effective settings and ends. An unknown key or value causes a warning with its file and line and the nearest key; with
`--strict` it is rejected. Keys of upstream that have no meaning here are accepted silently. Sizes are in bytes, times in
milliseconds unless the key says otherwise.

The third column shows upstream's default where it is another one.
"""

SIMULATION = """# What simulated seeds play

Written by `scripts/pages` from the worlds; a test fails when it is out of date. How simulations fit with the other tests is in
[proofs](proofs.md).

A seed draws each feature of its world by itself, with the chance below. So any two features can meet in a seed, and a new
feature changes no other's seeds. `--with NAME` plays a feature in each seed, `--without NAME` in none:

```sh
scripts/prove --only cluster --with learner --with transactions --minutes 5
```

A failure names the features of its seed and the command that runs it again. Letters with numbers are the names of invariants.
"""

METRICS = """# Metrics

Written by `scripts/pages` from the declarations of the collectors; a test fails when it is out of date. [Monitor a
cluster](monitor.md) shows how to switch metrics on, and which of them are worth an alert.

Names, types and labels are upstream's where the last column says yes. Counters and histograms start at 0 with the process and
count only while metrics are on. A label set appears with its first count. Histograms have upstream's bounds. `is_system` and
`is_retry` are `true` or `false`.
"""

SERVERS: tuple[tuple[str, str, ModuleType], ...] = (
    (
        "Brokers",
        "Each metric also has the labels `cluster`, `node_type` (`broker`) and `node_id` (`brokerName`). In Raft mode "
        "`rocketmq_ha_epoch` is the term, `rocketmq_ha_confirm_offset` the end of what is committed and on this disk, and "
        "`rocketmq_ha_sync_state_set_size` counts the members that were heard within 3 s.",
        broker_figures,
    ),
    ("Brokers in Raft mode", "They have these, too.", group_figures),
    ("Controllers", "Each metric also has the labels `address`, `group` and `peer_id`.", controller_figures),
    ("Name servers", "Upstream's name servers have no metrics.", namesrv_figures),
    (
        "Every server with access control",
        "This metric is there if [access control](../security.md) is on.",
        access_figures,
    ),
    (
        "Every server with a certificate",
        "These metrics are there if [TLS](../security.md) is on.",
        networkfigures,
    ),
)

NOT_BUILT = """## Metrics of upstream that are missing

- `rocketmq_processor_watermark`: there are no thread pools. See `rocketmq_waiting_sends` and `rocketmq_held_pulls`.
- Labels `message_type` of messages in and `is_retry` of messages out: each needs a look into the properties of every message.
- `rocketmq_consumer_lag_latency_milliseconds` and `rocketmq_consumer_queueing_latency_milliseconds`: each scrape would read the
  log for every queue and group. `consumerProgress` shows the times.
- `rocketmq_consumer_inflight_messages`, `rocketmq_consumer_ready_messages`, `rocketmq_pop_*`: POP consumption is not built.
- `rocketmq_finish_message_latency`, and `rocketmq_half_messages` by topic: open transactions are kept without their topics. See
  `rocketmq_open_transactions`.
- `rocketmq_timer_*`, `rocketmq_timing_messages`, `rocketmq_delay_message_latency`: timers are not built, and delay levels
  are not measured.
- `rocketmq_rocksdb_*`, `rocketmq_proxy_up`: there is no RocksDB and no proxy.
- `aggregation` (`metricsInDelta`), OTLP and log exporters: a collector can scrape and forward.
"""

EVENTS = """# Log events

Written by `scripts/pages` from the logging calls of the sources; a test fails when it is out of date. [Look at a
cluster](look.md#read-the-log) shows how to read a log, and the lines of a failover.

A line has a time, a level, a logger, a text, and fields as `name=value`. The first word of the logger is a package or a noun of
it. Search this page for words of the text. An ellipsis is a part that changes. Lines of level DEBUG are left out, and so are
texts that are made at run time, such as the reason behind `fatal:`.
"""

PACKAGES: tuple[tuple[str, str], ...] = (
    ("broker", "Brokers: roles, requests, tables, transactions, retention."),
    ("ha", "Brokers: replication between master and slaves."),
    ("messagestore", "Brokers: commit log, consume queues and index files."),
    ("epochfile", "Brokers: the epoch file."),
    ("raftstore", "Brokers in Raft mode."),
    ("controller", "Controllers."),
    ("dledger", "Controllers, and brokers in Raft mode: the Raft group."),
    ("namesrv", "Name servers."),
    ("accesscontrol", "All servers: who may send what, and the audit log."),
    ("remoting", "All servers: connections."),
    ("mqruntime", "All servers: start, end, metrics."),
    ("mqclient", "Programs that use the Python client."),
    ("sparkreplay", "Readers of stores: `mqreplay` and the Spark data source."),
)

KINDS = "Each kind of fault is a feature, too, with a chance of its own: {}."

WORLDS: tuple[tuple[str, str, Features], ...] = (
    (
        "cluster",
        "Three controllers, three brokers, a name server and clients under load. Each step checks acknowledged messages, "
        "readable messages and the logs.",
        shape.FEATURES,
    ),
    (
        "pairs",
        "A master, one or two slaves, a name server and a client; kills, cuts, lost memory and an operator. P1: there is one "
        "log. P2: an answer OK means that a slave has the message. P3: shown messages are at a slave. P4: acknowledged "
        "messages can be read.",
        pairs.FEATURES,
    ),
    (
        "groups",
        "A Raft-mode set, a name server, and a client that sends messages, batches and delayed ones; kills, power cuts, "
        "pauses, cuts, slow, full and lost disks, clocks that jump. The check keeps its own copy of what was committed. G1: "
        "acknowledged messages are where the answer named them, in each member's queues and for readers. G2: there is one "
        "leader a term, and only the leader answers. G3: equal entries are at equal positions, queue offsets have no gap "
        "and are not given twice. G4: a member shows or answers only messages on its own disk and a majority of disks. G5: "
        "the leader has everything. G6: store times never go back, a set without faults serves. G7: name servers list the "
        "leader as id 0. V2: a full disk ends no member that serves. N1 to N4 of [proofs](proofs.md), D1 to D3 of delayed "
        "messages.",
        groups.FEATURES,
    ),
    (
        "raft",
        "A Raft group and its disks. R1 to R17 of Raft, snapshots and reclaimed logs among them. V2 to V4: the requests "
        "that a leader waits for are under way, within its limits, one push after the other, with windows of one to eight "
        "pushes, calls that overtake each other, and state machines that take batches (`simulation/raft/check.py`).",
        raft.FEATURES,
    ),
    (
        "controllers",
        "Controllers under 1 to 50 sets of scripted brokers, operators and strangers: requests, their epochs, and their "
        "outcome are checked.",
        controllers.FEATURES,
    ),
)


def configuration() -> str:
    parts = [CONFIGURATION]
    for command, settings_class in (
        ("mqbroker", BrokerSettings),
        ("mqcontroller", ControllerSettings),
        ("mqnamesrv", NamesrvSettings),
    ):
        parts.append(f"## {command}\n\n{markdown_table(settings_class)}")
    return "\n".join(parts)


def simulation() -> str:
    return "\n".join([SIMULATION, *(section(*world) for world in WORLDS)])


def metrics() -> str:
    return "\n".join([METRICS, *(metrics_of(*server) for server in SERVERS), NOT_BUILT])


def metrics_of(server: str, about: str, declared: ModuleType) -> str:
    lines = [f"## {server}", "", about, ""]
    lines += ["| metric | type | labels | meaning | upstream's |", "|---|---|---|---|---|"]
    for figure in vars(declared).values():
        if isinstance(figure, Figure):
            labels, theirs = ", ".join(figure.labels), "no" if figure.ours else "yes"
            lines.append(f"| `{figure.name}` | {figure.kind} | {labels} | {figure.meaning} | {theirs} |")
    return "\n".join([*lines, ""])


def events() -> str:
    parts = [EVENTS]
    for package, about in PACKAGES:
        parts += [f"## {package}", "", about, "", *map(event_entry, events_of(package)), ""]
    return "\n".join(parts)


def event_entry(event: Event) -> str:
    fields = f" *Fields:* {', '.join(f'`{name}`' for name in event.fields)}." if event.fields else ""
    hint = f" *Hint:* {event.hint}." if event.hint else ""
    end = "" if event.text.endswith("…") else "."
    return f"- **{event.level}** {event.text}{end}{fields}{hint}"


def section(world: str, about: str, features: Features) -> str:
    """The section of one world: a list of its features, and a line with those that are only kinds of faults."""
    lines = [f"## {world}", "", about, ""]
    listed = [feature for feature in features.all() if feature.plays != raft.KIND_OF_FAULT]
    lines += [entry(feature) for feature in listed]
    if kinds := [f"`{feature.name}`" for feature in features.all() if feature not in listed]:
        lines += ["", KINDS.format(", ".join(kinds))]
    return "\n".join([*lines, ""])


def entry(feature: Feature) -> str:
    checks = f" *Checks:* {feature.checks}" if feature.checks else ""
    return (
        f"- **{feature.name}** ({feature.chance:.0%}). {feature.plays}{checks}{brought_and_excluded(feature)}"
    )


def brought_and_excluded(feature: Feature) -> str:
    brings = f" Brings {', '.join(sorted(feature.brings))}." if feature.brings else ""
    return brings + (f" Not with {', '.join(sorted(feature.excludes))}." if feature.excludes else "")


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "simulation.md": simulation,
    "operations/metrics.md": metrics,
    "operations/events.md": events,
}


def main(arguments: list[str]) -> int:
    written = {DOCS / name: page() for name, page in PAGES.items()}
    if arguments == ["--check"]:
        old = [page.name for page, text in written.items() if not page.exists() or page.read_text() != text]
        print(f"out of date: {', '.join(old)}; run scripts/pages" if old else "all pages are up to date")
        return 1 if old else 0
    for page, text in written.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
