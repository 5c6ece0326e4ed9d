"""The handler of VIEW_BROKER_STATS_DATA (315): recent amounts of a topic, or of a group."""

from __future__ import annotations

from broker.metrics.recent import Grown, RecentTotals
from mqruntime.clock import Clock
from remoting.bodies.brokerstats import BrokerStatsData, BrokerStatsItem
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import BrokerStatsHeader
from remoting.peer import Peer
from remoting.router import Router


class BrokerStatsRequests:
    """The statistics of one broker."""

    def __init__(self, recent: RecentTotals, clock: Clock) -> None:
        self._recent = recent
        self._clock = clock

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.VIEW_BROKER_STATS_DATA, self._view)

    def _view(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = BrokerStatsHeader.from_ext(command.ext)
        name, key = header.stats_name, header.stats_key
        found = self._recent.grown(name, key, self._clock.monotonic_ms())
        if found is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        sizes = name.endswith("_SIZE")
        return command.reply(body=BrokerStatsData(*(_item(each, sizes=sizes) for each in found)).encode())


def _item(grown: Grown, *, sizes: bool) -> BrokerStatsItem:
    amount = grown.bytes if sizes else grown.messages
    return BrokerStatsItem(amount, amount * 1000 / grown.ms, amount / grown.calls if grown.calls else 0.0)
