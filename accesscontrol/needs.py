"""What the requests of a port need, as a table: request code -> row. A code without a row needs to update the cluster.

Invariant: a row that reads names from a request reads those that the request's handler reads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from accesscontrol.policies import Action, Kind, Need
from remoting.command import RemotingCommand
from remoting.errors import HeaderError

NeedsOf = Callable[[RemotingCommand], Iterable[Need]]
"""Raises HeaderError or BodyError if the request has no names."""


@dataclass(frozen=True, slots=True)
class Row:
    """`needs` of a request, each of which its user must have. `from_servers(request)`: a server may send it, too, which proves
    itself by its certificate. `is_administrative`: each such request is written to the audit log. `may_be_open`: settings may
    open it to everybody. `only_super`: no policy is enough, because who may send it gets passwords or changes the log.
    `is_of_cluster`: it is about the cluster and no topic or group, so super users may send it to a broker in trouble.
    `at_least`: what the user must have for some name, before a long body is read."""

    needs: NeedsOf
    from_servers: Callable[[RemotingCommand], bool] = lambda request: False
    is_administrative: bool = False
    may_be_open: bool = True
    only_super: bool = False
    is_of_cluster: bool = False
    at_least: Need | None = None


Table = Mapping[int, Row]


def always(request: RemotingCommand) -> bool:
    return True


class ClusterRows:
    """Rows whose requests concern the whole cluster of this name."""

    def __init__(self, cluster: str) -> None:
        self._get = Need(Kind.CLUSTER, cluster, (Action.GET,))
        self._update = Need(Kind.CLUSTER, cluster, (Action.UPDATE,))

    @property
    def reads(self) -> Row:
        return Row(lambda command: (self._get,), is_of_cluster=True)

    @property
    def changes(self) -> Row:
        return Row(
            lambda command: (self._update,), is_administrative=True, may_be_open=False, is_of_cluster=True
        )

    @property
    def of_servers(self) -> Row:
        """Servers send these; super users may send them, too."""
        return Row(
            lambda command: (self._update,),
            from_servers=always,
            may_be_open=False,
            only_super=True,
            is_of_cluster=True,
        )

    @property
    def read_by_servers(self) -> Row:
        return Row(lambda command: (self._get,), from_servers=always, is_of_cluster=True)


def why_not_open(table: Table, codes: Iterable[int]) -> str | None:
    """Why settings may not open requests of these codes to everybody; None if they may."""
    closed = sorted(code for code in codes if code not in table or not table[code].may_be_open)
    if not closed:
        return None
    names = ", ".join(map(str, closed))
    return f"{names}: these change something or are not served, and are never open to everybody"


def why_not_for_each_user(table: Table, codes: Iterable[int]) -> str | None:
    """Why settings may not let each user send requests of these codes; None if they may."""
    closed = sorted(
        code for code in codes if code not in table or table[code].is_administrative or table[code].only_super
    )
    if not closed:
        return None
    return f"{', '.join(map(str, closed))}: these are for administrators or servers, or are not served"


def named(command: RemotingCommand, field: str) -> str:
    """The value of an ext field. Raises HeaderError."""
    value = command.ext.get(field)
    if not value:
        raise HeaderError(field, value, "the request must name it")
    return value
