"""The accounts with which servers, clients and operators of a simulated world sign, if its seed has access control."""

from __future__ import annotations

from remoting.signing import Credentials, Signer

OPERATOR = Credentials("operator", "operator-password")
"""The super user as whom all clients sign, except those of simulation.workloads.accessclients."""
SIGNING: dict[str, object] = {
    "innerClientAuthenticationCredentials": '{"accessKey":"servers","secretKey":"servers-secret"}'
}
"""Settings of a server that signs and checks nothing."""
SETTINGS: dict[str, object] = {
    **SIGNING,
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": f'{{"username":"{OPERATOR.access_key}","password":"{OPERATOR.secret_key}"}}',
}
"""Settings of name servers, controllers and brokers."""


def signer_of(credentials: Credentials | None) -> Signer | None:
    """None if requests are not signed."""
    return None if credentials is None else Signer(credentials)
