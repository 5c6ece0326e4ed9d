"""Files that name the replica id of a broker.

Invariant: the temporary file is durable before the broker applies for the id in it, and the identity file is durable before the
id is used. So after any crash the broker asks for the same id with the same check code, and no ghost replica remains.

    brokerIdentity        cluster#brokerName#id
    brokerIdentity-temp   cluster#brokerName#id#registerCheckCode
    storeMark             as brokerIdentity-temp, with the check code of the grant; without a code if none is known

Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

IDENTITY_FILE = "brokerIdentity"
TEMPORARY_SUFFIX = "-temp"
SEPARATOR = "#"
_ID = re.compile("0{0,18}[1-9][0-9]{0,18}")


class IdentityInvalid(Exception):
    """An identity file cannot be this broker's; an operator has to look at it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name}: {why}; restore the file or, for a new empty replica, remove the whole store"
        )
        self.name = name


@dataclass(frozen=True, slots=True)
class Identity:
    """A granted replica id, 1 or above, kept for the life of the store. The check code of the application distinguishes this id
    from the same id granted to another broker. It is empty if the store has no check code, as in upstream's stores."""

    cluster_name: str
    broker_name: str
    broker_id: int
    check_code: str = ""

    def encode(self) -> bytes:
        return SEPARATOR.join((self.cluster_name, self.broker_name, str(self.broker_id))).encode()

    def encode_mark(self) -> bytes:
        return SEPARATOR.join(
            [self.encode().decode(), *([self.check_code] if self.check_code else [])]
        ).encode()


@dataclass(frozen=True, slots=True)
class TemporaryIdentity:
    """An id that this broker applies for. The check code proves that a repeated application is from this broker."""

    cluster_name: str
    broker_name: str
    broker_id: int
    check_code: str

    def encode(self) -> bytes:
        return SEPARATOR.join(
            (self.cluster_name, self.broker_name, str(self.broker_id), self.check_code)
        ).encode()


def decode_identity(name: str, data: bytes, cluster_name: str, broker_name: str) -> Identity:
    """The identity in file `name`. Raises IdentityInvalid if the file is damaged or another broker's."""
    broker_id = _checked(name, data, (3,), cluster_name, broker_name)[2]
    return Identity(cluster_name, broker_name, int(broker_id))


def decode_mark(name: str, data: bytes, cluster_name: str, broker_name: str) -> Identity:
    """The identity in the mark `name`, with the check code if the mark has one. Raises IdentityInvalid."""
    fields = _checked(name, data, (3, 4), cluster_name, broker_name)
    return Identity(cluster_name, broker_name, int(fields[2]), "".join(fields[3:]))


def decode_temporary(name: str, data: bytes, cluster_name: str, broker_name: str) -> TemporaryIdentity:
    """The application in file `name`. Raises IdentityInvalid."""
    fields = _checked(name, data, (4,), cluster_name, broker_name)
    return TemporaryIdentity(cluster_name, broker_name, int(fields[2]), fields[3])


def _checked(
    name: str, data: bytes, counts: tuple[int, ...], cluster_name: str, broker_name: str
) -> list[str]:
    try:
        fields = data.decode().strip().split(SEPARATOR)
    except UnicodeDecodeError:
        raise IdentityInvalid(name, "is not text") from None
    if len(fields) not in counts or not _ID.fullmatch(fields[2]):
        raise IdentityInvalid(name, f"{data!r} does not have {counts[0]} fields separated by {SEPARATOR}")
    if (fields[0], fields[1]) != (cluster_name, broker_name):
        raise IdentityInvalid(
            name, f"belongs to {fields[0]}/{fields[1]}, this broker is {cluster_name}/{broker_name}"
        )
    return fields
