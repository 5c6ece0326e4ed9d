"""Planted bugs of parsers and checks. Hosts that are no members of the cluster find them."""

from __future__ import annotations

from broker.role import membership
from broker.role.actions import Action, AskAll, Grant
from broker.role.controllerhosts import ControllerHosts
from broker.role.membership import HINT_EVERY_MS, Membership
from broker.switchover.handover import HandOverRequests
from controller import commands
from controller.commands import IdentityRefusal, Process
from controller.heartbeats import BrokerKey, Liveness
from controller.state import Replica
from dledger.node.authenticator import PeerAuthenticator, TheirList
from dledger.raft.messages import Message
from ha.slave.link import SlaveLink
from ha.syncstateset import Alter, AlterOutcome, SyncStateSet
from mqruntime.peercertificate import PeerCertificate
from mqruntime.tls import TlsNetwork
from namesrv.server import NamesrvApp
from remoting import header
from remoting.certificateguard import CertificateGuard
from remoting.peer import Peer
from remoting.wirefields import IntegerRange
from simulation.mutants.cluster.bugs import bug


@bug("numbers-are-believed", header, "parse_integer", plays=("strangers",))
def numbers_are_believed(text: str, allowed: IntegerRange) -> int | None:
    """A field that is no number makes the server fail."""
    return int(text)


@bug("strangers-move-terms", PeerAuthenticator, "check_request", plays=("strangers",))
async def strangers_move_terms(
    self: PeerAuthenticator,
    sender: str,
    request: Message,
    theirs: TheirList,
    remote_address: str,
    certificate: PeerCertificate,
) -> None:
    """R11: a peer is taken for the member that it names, from any address and with any term."""


@bug("notification-believed", Membership, "notified", plays=("forger",))
def notification_believed(self: Membership, grant: Grant, now_ms: int) -> list[Action]:
    """Upstream: master and set in any NOTIFY_BROKER_ROLE_CHANGED (1008) are accepted, from any sender."""
    return self.granted_by_group(grant, now_ms) if self._is_current else []


@bug("anybody-hands-over", ControllerHosts, "_is_one")
async def anybody_hands_over(self: ControllerHosts, peer: Peer) -> bool:
    """A stranger makes a master hold back clients' sends, again and again."""
    return True


@bug("strangers-pass-on", HandOverRequests, "_is_of_this_set")
async def strangers_pass_on(self: HandOverRequests, peer: Peer, broker_id: int | None) -> bool:
    """A peer that asks whether a master serves is taken for the former master, or for one of its clients."""
    return True


@bug("anybody-unregisters", NamesrvApp, "_speaks_for")
def anybody_unregisters(self: NamesrvApp, peer: Peer, cluster: str, broker_addr: str) -> bool:
    """Upstream: any peer can remove a broker from the routes, or keep it in them, by naming it."""
    return True


@bug("anonymous-processes-count", commands, "_why_not_anonymous")
def anonymous_processes_count(replica: Replica, live: Liveness, key: BrokerKey) -> IdentityRefusal | None:
    """Upstream: any peer can register under a broker's id and change its address. A master is deposed by that."""
    return None


@bug("numbers-alone-count", commands, "_why_not_numbered")
def numbers_alone_count(
    replica: Replica, live: Liveness, key: BrokerKey, process: Process, known: int
) -> str | None:
    """A peer with an invented start number registers as a living broker, which then believes that its own disk was set back."""
    return None


@bug("any-masters-epoch", SlaveLink, "_check_named")
def any_masters_epoch(self: SlaveLink, epoch: int) -> None:
    """Upstream: an epoch gets into the log's history although only the master at the other end has named it."""


@bug("far-epoch-taken", membership, "why_too_far")
def far_epoch_taken(epoch: int, known: int) -> str | None:
    """Upstream: an epoch may be as far from the last epoch as 32 bits allow."""
    return None


@bug("untrue-answer-taken", SyncStateSet, "why_untrue")
def untrue_answer_taken(self: SyncStateSet, alter: Alter, fate: AlterOutcome) -> str | None:
    """Upstream: any answer to an alter sets the members of the set and its epoch."""
    return None


@bug("hint-lost", Membership, "_ask_about_hint")
def hint_lost(self: Membership, now_ms: int) -> list[Action]:
    """A notification that comes soon after another is forgotten."""
    if not self._hinted or not self._may_ask_about_hint():
        return []
    self._hinted = False
    if now_ms < self._hint_due_ms:
        return []
    self._hint_due_ms = now_ms + HINT_EVERY_MS
    return [AskAll()]


@bug("any-certificate-speaks-for-all", PeerCertificate, "speaks_for")
def any_certificate_speaks_for_all(self: PeerCertificate, address: str) -> bool:
    """A valid certificate of one member speaks for every other one."""
    return True


@bug("any-server-will-do", PeerCertificate, "contradicts")
def any_server_will_do(self: PeerCertificate, address: str) -> bool:
    """A client talks to any server of the host that it dialled."""
    return False


@bug("broken-files-are-not-noticed", TlsNetwork, "look")
async def broken_files_are_not_noticed(self: TlsNetwork) -> None:
    """Certificates are read at the start only."""


@bug("clients-speak-for-brokers", CertificateGuard, "_why_not")
def clients_speak_for_brokers(self: CertificateGuard, claimed: str | None, peer: Peer) -> None:
    """Controllers and name servers do not look at the certificate of a request in the name of a broker."""
