"""The list of a group's members, as members send and compare it.

Invariant: two members whose lists have different ids are not of one group: each would count its own majority. Addresses may
differ, because a host has several names. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mqruntime.hostports import check_address


def peer_list(peers: Mapping[str, str]) -> str:
    """ "n0-host:port;n1-host:port", sorted by id: the form of the setting."""
    return ";".join(f"{member}-{address}" for member, address in sorted(peers.items()))


def parsed_peers(text: str, setting: str) -> dict[str, str]:
    """Id -> "host:port" in the order of `text`, the value of `setting`. Raises ValueError."""
    found: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        member, dash, address = entry.partition("-")
        if not (dash and member and address):
            raise ValueError(f"{entry!r} in {setting} is not ID-HOST:PORT")
        try:
            check_address(address)
        except ValueError as error:
            raise ValueError(f"{entry!r} in {setting} is not ID-HOST:PORT: {error}") from None
        if member in found:
            raise ValueError(f"{entry!r} in {setting}: the id is given twice")
        if address in found.values():
            raise ValueError(f"{entry!r} in {setting}: another one has this address")
        found[member] = address
    return found


def listed(text: str) -> dict[str, str]:
    """The ids and addresses in a list that `peer_list` made; other entries are left out."""
    pairs = (entry.partition("-") for entry in text.split(";"))
    return {member: address for member, dash, address in pairs if member and dash and address}


def difference(own: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The differences between the ids of two lists, for an operator; empty if there are none."""
    only_here, only_there = sorted(own.keys() - theirs.keys()), sorted(theirs.keys() - own.keys())
    parts = [f"only here {', '.join(only_here)}"] if only_here else []
    if only_there:
        parts.append(f"only there {', '.join(only_there)}")
    return "; ".join(parts)
