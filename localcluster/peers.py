"""Finds the process at the other end of a connection on this machine.

Invariant: a socket is identified by its two addresses, which are unique while it is open. Its owner is the process that has the
socket among its open files. Nothing is guessed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from struct import Struct

Address = tuple[str, int]

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ANY_STATE = NO_COOKIE = 0xFFFFFFFF

NLMSGHDR = Struct("=IHHII")  # length, type, flags, sequence, port
INET_DIAG_REQ = Struct("=BBBxI")  # family, protocol, extensions, states
INET_DIAG_SOCKID = Struct("!HH4s12x4s12x4s8s")  # ports, source, destination, interface, cookie
INET_DIAG_MSG_REST = Struct("=IIIII")  # expires, receive queue, send queue, user, inode
INET_DIAG_MSG_SIZE = 4 + INET_DIAG_SOCKID.size + INET_DIAG_MSG_REST.size


def inode_of(local: Address, remote: Address) -> int | None:
    """The inode of the socket with these ends, from the kernel (sock_diag(7), which `ss` also uses). None if no process has
    the socket any more."""
    ends = socket.inet_aton(local[0]), socket.inet_aton(remote[0])
    body = INET_DIAG_REQ.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, ANY_STATE)
    body += INET_DIAG_SOCKID.pack(local[1], remote[1], *ends, bytes(4), NO_COOKIE.to_bytes(4) * 2)
    header = NLMSGHDR.pack(NLMSGHDR.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + body)
        answer = kernel.recv(4096)
    _, kind, *_ = NLMSGHDR.unpack_from(answer)
    if kind != SOCK_DIAG_BY_FAMILY or len(answer) < NLMSGHDR.size + INET_DIAG_MSG_SIZE:
        return None  # an error: there is no such socket
    *_, inode = INET_DIAG_MSG_REST.unpack_from(answer, NLMSGHDR.size + 4 + INET_DIAG_SOCKID.size)
    return inode or None


def owner_of(inode: int, processes: Mapping[str, int]) -> str | None:
    """The socket's owner among `processes` (name -> pid); None for any other owner. Only processes of the current user are
    found."""
    link = f"socket:[{inode}]"
    for name, pid in processes.items():
        folder = f"/proc/{pid}/fd"
        try:
            files = os.listdir(folder)
        except OSError:  # the process has ended
            continue
        for file in files:
            try:
                if os.readlink(f"{folder}/{file}") == link:
                    return name
            except OSError:  # the file was closed meanwhile
                continue
    return None
