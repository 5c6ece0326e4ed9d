"""A broker without controllers that accepts a notification as a broker under controllers accepts the controllers' answers.

The planted bugs of worlds without controllers use it."""

from __future__ import annotations

from broker.app import BrokerApp
from broker.role.actions import Action, Grant
from broker.role.membership import Membership
from remoting.codes import RequestCode

started = BrokerApp.start


async def hears_notifications(self: BrokerApp) -> None:
    """NOTIFY_BROKER_ROLE_CHANGED (1008) is not rejected."""
    self.requests.router.handlers[RequestCode.NOTIFY_BROKER_ROLE_CHANGED] = self._manager.notified
    await started(self)


def takes_what_is_notified(self: Membership, grant: Grant, now_ms: int) -> list[Action]:
    """The master named in NOTIFY_BROKER_ROLE_CHANGED (1008) is accepted from any sender."""
    return self.granted_by_group(grant, now_ms)
