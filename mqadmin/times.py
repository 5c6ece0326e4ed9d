"""Times in the format of upstream's tool.

Invariant: a text without a zone is in the given zone; None is the local zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from mqadmin.command import UsageWanted

DATE_FORMAT = "%Y-%m-%d#%H:%M:%S"


def format_time(epoch_ms: int, zone: tzinfo | None = None) -> str:
    """A time as `2026-11-21 10:28:39,754`."""
    return f"{format_seconds(epoch_ms, zone)},{epoch_ms % 1000:03d}"


def format_seconds(epoch_ms: int, zone: tzinfo | None = None) -> str:
    """A time as `2026-11-21 10:28:39`."""
    moment = datetime.fromtimestamp(epoch_ms // 1000, UTC).astimezone(zone)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def read_time(option: str, text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """The time in ms that `now`, a number of ms, or `yyyy-MM-dd#HH:mm:ss:SSS` means. Raises `UsageWanted`."""
    text = text.strip()
    if text == "now":
        return now_ms
    try:
        return int(text)
    except ValueError:
        pass
    date, _, millis = text.rpartition(":")
    try:
        moment = datetime.strptime(date, DATE_FORMAT)  # noqa: DTZ007 (the zone is set below)
        moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
        return int(moment.timestamp()) * 1000 + int(millis)
    except ValueError:
        raise UsageWanted(
            f"{option} {text}: give now, milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS"
        ) from None
