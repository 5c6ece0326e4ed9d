"""The leading controller logs each set that will have no master until an operator acts, and names a remedy.

Invariant: a set is first logged when no broker could be elected for `UNELECTED_MS`, and then every half minute. A set without
live brokers is not logged, because its operator already knows that it is down."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from controller.elections import WaitingReason
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

logger = logging.getLogger(__name__)

UNELECTED_MS = 10_000
"""Within this time all members have reported that come back together or are new to a new leader."""


@dataclass
class _Unelected:
    since_ms: int
    failure: RepeatedFailure = field(default_factory=RepeatedFailure)


class Unelected:
    """The sets that have no master, each with the time since when it has none."""

    def __init__(self) -> None:
        self._since: dict[str, _Unelected] = {}

    def look(self, waiting: dict[str, WaitingReason], now_ms: int) -> None:
        """Record the sets that have no master now, and log those that have had none for `UNELECTED_MS`. All other sets are
        forgotten."""
        self._since = {name: self._since.get(name) or _Unelected(now_ms) for name in waiting}
        for name, each in self._since.items():
            has_lasted = now_ms - each.since_ms >= UNELECTED_MS
            if has_lasted and each.failure.failed(waiting[name], now_ms):
                self.log(name, waiting[name])

    def log(self, broker_name: str, waiting: WaitingReason) -> None:
        """Log the set `broker_name` now."""
        missing = sorted(waiting.missing)
        if waiting.best is None:
            logger.warning(
                "nobody is elected, for no live broker was in the last SyncStateSet",
                extra=fields(
                    broker=broker_name,
                    missing=missing,
                    hint="start a missing broker; if all of them are lost for good, set enableElectUncleanMaster=true and lose "
                    "what they alone held",
                ),
            )
            return
        if not missing and not any(waiting.may_miss.values()):
            logger.warning(
                "nobody is elected, for the logs of all members are empty although messages were confirmed",
                extra=fields(
                    broker=broker_name,
                    may_miss=sorted(waiting.may_miss),
                    best=waiting.best,
                    hint="check that their own disks are mounted; if the logs are lost for good, elect the best with mqadmin "
                    "electMaster and start empty",
                ),
            )
            return
        if waiting.set_back:
            logger.warning(
                "nobody elected, disk set back",
                extra=fields(
                    broker=broker_name,
                    set_back=sorted(waiting.set_back),
                    missing=missing,
                    may_miss=sorted(waiting.may_miss),
                    best=waiting.best,
                    log_end=waiting.may_miss[waiting.best],
                    outside=waiting.outside,
                    hint="the newer disks of set_back may hold acknowledged data: start those and the missing brokers; if they "
                    "are lost for good, elect the best with mqadmin electMaster and lose what it is missing "
                    "(one of outside, by id -> log end, needs enableElectUncleanMaster=true)",
                ),
            )
            return
        logger.warning(
            "no election: live brokers may be missing acknowledged messages",
            extra=fields(
                broker=broker_name,
                missing=missing,
                may_miss=sorted(waiting.may_miss),
                best=waiting.best,
                log_end=waiting.may_miss[waiting.best],
                hint="start the missing brokers; if they are lost for good, elect the best with mqadmin electMaster and lose "
                "what it is missing",
            ),
        )
