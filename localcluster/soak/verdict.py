"""The result of a soak: rows of verdicts from the book, the metrics, the logs and the faults.

Invariant: a soak passes only if no row fails. A row is unknown if its data was not examined; such a row does not fail. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from localcluster.history import SendOutcome
from localcluster.soak.book import Book, Fault
from localcluster.soak.figures import SoakFigure, column, formatted
from localcluster.soak.flatness import Allowance, flatness
from localcluster.soak.page import VerdictRow
from localcluster.soak.recording import Recording

MIB = 1 << 20
SHARE = 0.1
MEMORY = Allowance(SHARE, 8 * MIB)
DESCRIPTORS = Allowance(SHARE, 16)
CONTROLLER_DISK = Allowance(SHARE, 10 * MIB)
"""Each allows a tenth and, in addition, the normal variation of the metric: by pending work for memory and descriptors, by a
file for disk."""
SEGMENTS_ALLOWED = 3
"""The segment being written, the next segment, which is made in advance, and one segment that has not expired."""


@dataclass(slots=True)
class SoakFindings:
    """What a verdict needs besides the book and the metrics: texts about unexpected events, each of which is a fault."""

    ended: list[str] = field(default_factory=list)
    """Processes that ended although nothing stopped them."""
    strikes: list[str] = field(default_factory=list)
    """Faults after which the cluster was not whole, or that could not be carried out."""
    log_lines: int = 0
    retained: int | None = None
    """The number of acknowledged messages that were read again at the end; None before that."""


def rows(
    book: Book,
    recording: Recording,
    findings: SoakFindings,
    segment_bytes: int,
    brokers: Sequence[str],
    others: Sequence[str],
) -> list[VerdictRow]:
    return [
        *_messages(book, findings),
        *_flat(recording, segment_bytes, brokers, others),
        _none("a process ended by itself", findings.ended),
        _none("a strike that was not overcome", findings.strikes),
        VerdictRow("errors in logs", findings.log_lines == 0, f"{findings.log_lines}"),
    ]


def passed(known_rows: Iterable[VerdictRow]) -> bool:
    return all(row.holds is not False for row in known_rows)


def _messages(book: Book, findings: SoakFindings) -> list[VerdictRow]:
    acknowledged = book.outcomes[SendOutcome.ACKNOWLEDGED]
    unread = sum(account.removed_unread for account in book.queues.values())
    sent = (
        f"{acknowledged:,} acknowledged, {book.outcomes[SendOutcome.REFUSED]:,} refused, "
        f"{book.outcomes[SendOutcome.UNKNOWN]:,} of unknown outcome; {book.read_count:,} read by the consumer"
    )
    if unread:
        sent += f"; retention removed {unread:,} before the consumer came"
    faults = ", ".join(
        f"{count} {fault}" for fault, count in book.faults.counts.items() if fault is not Fault.LOST
    )
    lost = book.faults.counts[Fault.LOST]
    again = (
        "not read again yet"
        if findings.retained is None
        else f"{findings.retained:,} retained ones read again at the end"
    )
    return [
        VerdictRow(
            "acknowledged messages lost",
            lost == 0 if findings.retained is not None or lost else None,
            f"{lost}; {again}",
        ),
        VerdictRow("other broken promises", not faults, faults or "none"),
        VerdictRow("messages", None, sent),
        VerdictRow(
            "delayed messages",
            None,
            f"{len(book.awaited)} under way, {book.delayed_twice} delivered twice, "
            f"the latest {book.delayed_late_ms / 1000:.1f} s late",
        ),
    ]


def _flat(
    recording: Recording, segment_bytes: int, brokers: Sequence[str], others: Sequence[str]
) -> list[VerdictRow]:
    broker_disk = Allowance(SHARE, SEGMENTS_ALLOWED * segment_bytes)
    names = [*brokers, *others]
    return [
        _flat_row(recording, SoakFigure.MEMORY, [(name, MEMORY) for name in names]),
        _flat_row(recording, SoakFigure.DESCRIPTORS, [(name, DESCRIPTORS) for name in names]),
        _flat_row(
            recording,
            SoakFigure.DISK,
            [*((name, broker_disk) for name in brokers), *((name, CONTROLLER_DISK) for name in others)],
        ),
    ]


def _flat_row(
    recording: Recording, figure: SoakFigure, allowed: Sequence[tuple[str, Allowance]]
) -> VerdictRow:
    """The row that compares, for every process, the median of the last third with that of the middle third."""
    in_bytes = figure is not SoakFigure.DESCRIPTORS
    parts, flat, known = [], True, False
    for name, allowance in allowed:
        found = flatness(recording.times_s, recording.column(column(name, figure)), allowance)
        if found is None:
            continue
        known = True
        middle, last = formatted(found.middle, in_bytes=in_bytes), formatted(found.last, in_bytes=in_bytes)
        text = f"{name} {middle} → {last}"
        if not found.is_flat:
            flat = False
            text += f" (at most {formatted(found.limit, in_bytes=in_bytes)})"
        parts.append(text)
    what = f"{figure} stays"
    return (
        VerdictRow(what, flat, "; ".join(parts))
        if known
        else VerdictRow(what, None, "too short for a verdict")
    )


def _none(what: str, lines: Sequence[str]) -> VerdictRow:
    return VerdictRow(what, not lines, "; ".join(lines) or "none")
