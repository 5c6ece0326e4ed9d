"""Tells, in the log of the controller that leads, which sets stay without a master until somebody acts, and what to do.

Invariant: a set is told of once nobody could be elected for `UNELECTED_MS`, and every half minute while that lasts; only where
brokers of it live, for a set that is down is no news."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from controller.elections import Waiting
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

logger = logging.getLogger(__name__)

UNELECTED_MS = 10_000
"""Members that come back together, or are heard by a new leader, have said how they are within this time."""


@dataclass
class _Standing:
    since_ms: int
    told: RepeatedFailure = field(default_factory=RepeatedFailure)


class Unelected:
    """Of all sets."""

    def __init__(self) -> None:
        self._standing: dict[str, _Standing] = {}

    def look(self, waiting: dict[str, Waiting], now_ms: int) -> None:
        """`waiting` are the sets that stand so now; of others nothing is remembered."""
        self._standing = {name: self._standing.get(name) or _Standing(now_ms) for name in waiting}
        for name, standing in self._standing.items():
            has_lasted = now_ms - standing.since_ms >= UNELECTED_MS
            if has_lasted and standing.told.failed(waiting[name], now_ms):
                self.tell(name, waiting[name])

    def tell(self, broker_name: str, waiting: Waiting) -> None:
        """Now."""
        missing = sorted(waiting.missing)
        if waiting.best is None:
            logger.warning(
                "nobody is elected, for who lives was not in the last SyncStateSet: start a broker that is missing; if all of "
                "them are lost for good, set enableElectUncleanMaster=true, and what they alone held is lost",
                extra=fields(broker=broker_name, missing=missing),
            )
            return
        if not missing and not any(waiting.may_lack.values()):
            logger.warning(
                "nobody is elected, for the logs of all members are empty although messages were confirmed: see that their own "
                "disks are mounted; if the logs are lost for good, elect the best with mqadmin electMaster and begin anew",
                extra=fields(broker=broker_name, may_lack=sorted(waiting.may_lack), best=waiting.best),
            )
            return
        if waiting.set_back:
            logger.warning(
                "nobody elected, disk set back",
                extra=fields(
                    broker=broker_name,
                    set_back=sorted(waiting.set_back),
                    missing=missing,
                    may_lack=sorted(waiting.may_lack),
                    best=waiting.best,
                    log_end=waiting.may_lack[waiting.best],
                    outside=waiting.outside,
                    hint="the newer disks of set_back may hold what was acknowledged: start those and the brokers that are "
                    "missing; if they are lost for good, elect the best with mqadmin electMaster and lose what it is missing "
                    "(one of outside, by id -> log end, needs enableElectUncleanMaster=true)",
                ),
            )
            return
        logger.warning(
            "nobody is elected, for who lives may lack what was acknowledged: start the brokers that are missing; if they are "
            "lost for good, elect the best with mqadmin electMaster and lose what it lacks",
            extra=fields(
                broker=broker_name,
                missing=missing,
                may_lack=sorted(waiting.may_lack),
                best=waiting.best,
                log_end=waiting.may_lack[waiting.best],
            ),
        )
