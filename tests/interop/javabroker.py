"""The command of a Java broker, for a pair or group of a test, and the settings of one with access control."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.peers.javaserver import java_server

USER, PASSWORD = "rocketmq", "12345678"
AUTH = "org.apache.rocketmq.auth"
CHECKED = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": USER, "password": PASSWORD}),
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "transactionMetricFlushInterval": "200",
    "timerWheelEnable": "false",
}
INNER = {"innerClientAuthenticationCredentials": json.dumps({"accessKey": USER, "secretKey": PASSWORD})}


def java_broker(file: Path) -> list[str]:
    """Called as the commands of a pair or group are."""
    return java_server("broker", file, file.parent / file.stem)
