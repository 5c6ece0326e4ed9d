"""Authorisation of slaves: a slave needs an id that the controllers know, and must connect from this id's registered host.

Invariant: an admitted slave is in the controllers' table, as last read, with its id and, unless the host check is off, its
host. A slave is rejected only after a read, successful or not, that started after the slave came. However many unknown links
come, only one read at a time is running or planned, and it starts at least `READ_AGAIN_MS` after the end of the last read. A
table is used until the next table was read.

    come --in the table--> Admit
    come --not in it--> waiting --read starts--> asked --table read, in it--> Admit
                                                       --not in it, or not read--> Refuse

Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from mqruntime.peercertificate import NOT_ASKED, PeerCertificate

READ_AGAIN_MS = 200
NOBODY = -1
LOOPBACK = "127.0.0.1"


class RegisteredReplica(NamedTuple):
    """A broker's registration at the controllers: the host's addresses in the form of `plain`, and the registered host:port."""

    hosts: frozenset[str]
    address: str = ""


Table = Mapping[int, RegisteredReplica]
"""The registered replicas by broker id."""


class Why(Enum):
    """The reason why a slave is not admitted, with a remedy."""

    UNKNOWN_ID = "controllers know no broker of this id in this set; stop what runs there, or give it another brokerName"
    ELSEWHERE = (
        "controllers know this id at another host; stop what runs there, or, if that is the broker and it comes over another "
        "network or through address translation, set haSlaveHostCheck=false on all brokers of the set"
    )
    OTHER_CERTIFICATE = (
        "its certificate does not speak for the address that this id registered at the controllers, or is for servers other "
        "than brokers of this set; give that broker a certificate with its host, or with rocketmq://HOST:PORT"
    )
    NO_MEMBER = (
        "the group has no member of this id at this host; stop what runs there, or, if that is the member and it comes over "
        "another network or through address translation, set haSlaveHostCheck=false on all members"
    )
    UNCHECKED = (
        "controllers do not return the brokers of the set; checked again at its next connection, see that a majority of "
        "controllers runs"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Newcomer:
    """A link that claims to be the broker with id `broker_id`, or the broker registered as `address`. `host` is the link's
    origin in the form of `plain`."""

    broker_id: int
    host: str
    on_this_machine: bool
    address: str = ""
    certificate: PeerCertificate = NOT_ASKED


@dataclass(frozen=True, slots=True)
class Admit:
    """Admit the newcomer as `broker_id`."""

    newcomer: Newcomer
    broker_id: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reject the newcomer. `registered` are the addresses of the claimed id, if the id is known."""

    newcomer: Newcomer
    why: Why
    registered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Read:
    """After `after_ms` call `read_begins`, ask the controllers, and report `table_read` or `table_unread`."""

    after_ms: int


Action = Admit | Refuse | Read


class Admittance:
    """The authorisation. It lasts as long as the process, so a later mastership starts with the last table."""

    def __init__(self, *, checks_hosts: bool, role: str = "") -> None:
        """The certificates of slaves must have this `role`, if they have roles; any role will do without one."""
        self._checks_hosts = checks_hosts
        self._role = role
        self._own_id = 0
        self._table: Table = {}
        self._waiting: dict[Newcomer, None] = {}  # in order of arrival, for the next read
        self._asked: dict[Newcomer, None] = {}  # for the running read
        self._read_planned = False  # or is running
        self._read_again_ms = 0

    def begin(self, own_id: int, now_ms: int) -> list[Action]:
        """Begin to lead as `own_id`. The table is read at once, because slaves will come soon."""
        self._own_id = own_id
        return self._plan_read(now_ms)

    def come(self, newcomer: Newcomer, now_ms: int) -> list[Action]:
        """Check a newcomer. Its Admit or Refuse is returned by this call or by a later call."""
        if (broker_id := self._id_of(newcomer)) is not None:
            return [Admit(newcomer, broker_id)]
        self._waiting[newcomer] = None
        return self._plan_read(now_ms)

    def left(self, newcomer: Newcomer) -> None:
        """Forget a link that ended by itself; harmless if it was admitted or rejected."""
        self._waiting.pop(newcomer, None)
        self._asked.pop(newcomer, None)

    def read_begins(self) -> None:
        self._asked, self._waiting = self._waiting, {}

    def table_read(self, table: Table, now_ms: int) -> list[Action]:
        """Handle the table of a successful read."""
        self._table = table
        actions: list[Action] = []
        for newcomer in [*self._asked, *self._waiting]:
            if (broker_id := self._id_of(newcomer)) is not None:
                self.left(newcomer)
                actions.append(Admit(newcomer, broker_id))
        for newcomer in self._asked:
            registered = table.get(self._claimed_id(newcomer))
            why = Why.UNKNOWN_ID
            if registered is not None:
                speaks = self._speaks(newcomer.certificate, registered)
                why = Why.ELSEWHERE if speaks else Why.OTHER_CERTIFICATE
            actions.append(Refuse(newcomer, why, registered.hosts if registered else frozenset()))
        return [*actions, *self._read_ended(now_ms)]

    def table_unread(self, now_ms: int) -> list[Action]:
        """Handle a failed read."""
        refused = [Refuse(newcomer, Why.UNCHECKED) for newcomer in self._asked]
        return [*refused, *self._read_ended(now_ms)]

    def _read_ended(self, now_ms: int) -> list[Action]:
        self._asked = {}
        self._read_planned = False
        self._read_again_ms = now_ms + READ_AGAIN_MS
        return self._plan_read(now_ms) if self._waiting else []

    def _plan_read(self, now_ms: int) -> list[Action]:
        if self._read_planned:
            return []
        self._read_planned = True
        return [Read(max(self._read_again_ms - now_ms, 0))]

    def _claimed_id(self, newcomer: Newcomer) -> int:
        """The id that the newcomer claims."""
        if not newcomer.address:
            return newcomer.broker_id
        ids = (broker_id for broker_id, replica in self._table.items() if replica.address == newcomer.address)
        return next(ids, NOBODY)

    def _speaks(self, certificate: PeerCertificate, replica: RegisteredReplica) -> bool:
        may_be_slave = not self._role or certificate.may_be(self._role)
        return may_be_slave and certificate.speaks_for(replica.address)

    def _id_of(self, newcomer: Newcomer) -> int | None:
        """The id as which the newcomer may be admitted; None if it may not."""
        broker_id = self._claimed_id(newcomer)
        replica = self._table.get(broker_id)
        if replica is None or broker_id == self._own_id:
            return None
        if not self._speaks(newcomer.certificate, replica):
            return None
        if not self._checks_hosts or newcomer.host in replica.hosts:
            return broker_id
        own = self._table.get(self._own_id)
        ours = {LOOPBACK, *(own.hosts if own else ())}
        return broker_id if newcomer.on_this_machine and not ours.isdisjoint(replica.hosts) else None


def newcomer_of(
    broker_id: int,
    peer_host: str,
    own_host: str,
    address: str = "",
    certificate: PeerCertificate = NOT_ASKED,
) -> Newcomer:
    """The claim of a link between these addresses. If both ends have the same address, or one is loopback, they are on one
    machine."""
    peer = plain(peer_host)
    return Newcomer(broker_id, peer, peer in (LOOPBACK, plain(own_host)), address, certificate)


def plain(host: str) -> str:
    """Like `literal`, but a name is returned as it is."""
    return literal(host) or host


def literal(host: str) -> str | None:
    """The canonical form of an address: without brackets and scope, an IPv4 address not in IPv6 form, and all loopback
    addresses as one host. None for a name."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return LOOPBACK if address.is_loopback else str(address)
