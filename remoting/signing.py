"""Signatures of requests, as brokers with access control check them. Upstream: AclClientRPCHook, AclSigner.

The signature is the base64 of an HMAC-SHA1, by the secret key, over the values of all ext fields in the order of their keys,
and then the body. Keys are ordered by UTF-16 code units, as Java's String.compareTo orders them. Neither the keys of the ext
fields nor the code of the request is signed, and the signature contains no time. So only TLS prevents others from sending a
signed request again, or with another code.

Invariant: no text of this module shows a secret key. Pure."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from remoting.command import Body, RemotingCommand

ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The name of a user, and the password that the user shares with the servers. `security_token` is sent if it is not
    None."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not self.access_key or not self.secret_key:
            raise ValueError("an access key and a secret key are needed")


class Signer:
    """Signs the requests of one user."""

    @staticmethod
    def of(keys: tuple[str, str] | None) -> Signer | None:
        """The signer with this access key and secret key; None without keys."""
        return None if keys is None else Signer(Credentials(*keys))

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._key = credentials.secret_key.encode()

    def sign(self, request: RemotingCommand) -> None:
        """Add the ext fields of a signature. Former ones are replaced."""
        ext = request.ext
        ext[ACCESS_KEY] = self._credentials.access_key
        if self._credentials.security_token is not None:
            ext[SECURITY_TOKEN] = self._credentials.security_token
        pieces = [request.body, *request.behind] if request.body is not None else request.behind
        ext[SIGNATURE] = signature_of(ext, pieces, self._key)


def signature_of(ext: Mapping[str, str], body: Iterable[Body], secret_key: bytes) -> str:
    """The signature of a request with these ext fields, a signature among them left out, and the pieces of its body."""
    signed = hmac.new(secret_key, digestmod="sha1")
    keys = ext.keys() - {SIGNATURE}
    ordered = sorted(keys) if all(map(str.isascii, keys)) else sorted(keys, key=_utf16)
    signed.update(
        "".join(map(ext.__getitem__, ordered)).encode(errors="replace")
    )  # as Java, ? for half a character
    for piece in body:
        signed.update(piece)
    return b64encode(signed.digest()).decode()


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
