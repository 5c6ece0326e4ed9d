"""Settings of access control: each combination that would leave a port open is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accesscontrol.settings import PROVIDERS, AccessSettings, PortAccessSettings, codes_in
from broker.access.control import access_of
from broker.settings.broker import BrokerSettings
from controller.settings import ControllerSettings
from mqruntime.settings import SettingsError
from namesrv.settings import NamesrvSettings

INNER = 'innerClientAuthenticationCredentials={"accessKey":"servers","secretKey":"geheim-1"}'
FIRST = 'initAuthenticationUser={"username":"admin","password":"geheim-2"}'
SIGNED = "authenticationEnabled=true"
RIGHTS = "authorizationEnabled=true"
CONTROLLED = ["controllerAddr=127.0.0.1:9878", "namesrvAddr=127.0.0.1:9876"]
PAIR = ["enableControllerMode=false", "brokerRole=SYNC_MASTER", "namesrvAddr=127.0.0.1:9876"]


def refused(kind: type[Any], *settings: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        kind.load(None, [*settings])
    assert "geheim" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kind", [AccessSettings, PortAccessSettings])
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("aclEnable=true", "must be false: ACL 1.0 is not served"),
        ("migrateAuthFromV1Enabled=true", "must be false: convert the file once"),
        *(
            (f"{key}=org.example.Own", "must be empty or one of org.apache.rocketmq.auth.")
            for key in PROVIDERS
        ),
        ("authenticationWhitelist=105;106", "must be request codes with commas between them"),
        ("authenticationWhitelist=GET_ROUTEINFO_BY_TOPIC", "must be request codes"),
        ("authenticationWhitelist=-1", "must be request codes"),
        ("authorizationWhitelist=1 2", "must be request codes"),
        ("authorizationWhitelist=\u0661", "must be request codes"),
        *(
            (f"initAuthenticationUser={value}", 'must be {"username":"...","password":"..."}')
            for value in (
                "geheim", "[]", "7", "null", '{"username":"geheim"}', '{"username":"","password":"geheim"}',
                '{"username":"geheim","password":""}', '{"username":"geheim","password":7}',
            )
        ),
        ("innerClientAuthenticationCredentials=geheim", 'must be {"accessKey":"...","secretKey":"..."}'),
    ],
)  # fmt: skip
def test_a_value_is_refused_by_its_key(kind: type[Any], setting: str, why: str) -> None:
    error = refused(kind, setting)
    assert error.key == setting.partition("=")[0]
    assert why in error.why


@pytest.mark.parametrize("kind", [AccessSettings, PortAccessSettings, NamesrvSettings])
def test_rights_without_signatures_are_refused(kind: type[Any]) -> None:
    why = refused(kind, RIGHTS).why
    assert "authorizationEnabled=true needs authenticationEnabled=true" in why


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ([*PAIR, SIGNED, INNER], "authenticationEnabled=true needs controllers or Raft mode"),
        ([*CONTROLLED, SIGNED], "authenticationEnabled=true needs innerClientAuthenticationCredentials"),
        ([*CONTROLLED, RIGHTS], "authorizationEnabled=true needs authenticationEnabled=true"),
    ],
)  # fmt: skip
def test_a_broker_that_would_not_be_closed_is_refused(settings: list[str], why: str) -> None:
    assert why in refused(BrokerSettings, *settings).why


@pytest.mark.parametrize(
    ("whitelists", "why"),
    [
        *(
            ([f"authenticationWhitelist=28,{code}"], f"{code}: these change something or are not served")
            for code in (10, 11, 15, 17, 25, 34, 37, 310, 361, 1008, 3001, 3008, 290021, 290022, 105, 7777)
        ),
        (
            [RIGHTS, "authenticationWhitelist=17,28", "authorizationWhitelist=17"],
            "17: these change something",
        ),
    ],
)
def test_a_broker_opens_only_what_changes_nothing(whitelists: list[str], why: str) -> None:
    settings = BrokerSettings.load(None, [*CONTROLLED, SIGNED, INNER, *whitelists])
    none: Any = None
    with pytest.raises(SettingsError, match=f"^command line: authenticationWhitelist=.*: {why}") as caught:
        access_of(settings, none, none, none, none, none)
    assert caught.value.key == "authenticationWhitelist"


def test_a_broker_of_a_pair_and_an_open_one_start_as_before() -> None:
    assert not BrokerSettings.load(None, PAIR).authentication_enabled
    assert not BrokerSettings.load(None, CONTROLLED).authorization_enabled


def test_a_closed_broker() -> None:
    classes = [f"{key}={value}" for key, value in PROVIDERS.items()]
    settings = BrokerSettings.load(None, [*CONTROLLED, SIGNED, RIGHTS, INNER, FIRST, *classes])
    assert settings.inner_keys == ("servers", "geheim-1")
    assert settings.init_user == ("admin", "geheim-2")
    assert settings.open_codes == settings.signed_codes == frozenset()
    for shown in (repr(settings), str(settings), settings.effective()):
        assert "geheim" not in shown


def test_a_code_is_open_without_rights_if_both_lists_have_it() -> None:
    whitelists = ["authenticationWhitelist= 28, 26,", "authorizationWhitelist=26,25"]
    both = AccessSettings.load(None, [SIGNED, RIGHTS, *whitelists])
    assert both.open_codes == {26}
    assert both.signed_codes == {26, 25}
    signatures_only = AccessSettings.load(None, [SIGNED, *whitelists])
    assert signatures_only.open_codes == {26, 28}
    port = PortAccessSettings.load(None, [SIGNED, RIGHTS, *whitelists])
    assert port.open_codes == {26, 28}


def test_codes_in_a_list() -> None:
    assert codes_in("") == codes_in(" , ,") == frozenset()
    assert codes_in("105, 106,105") == {105, 106}


def test_keys_of_upstreams_caches_are_known_and_ignored() -> None:
    keys = [f"{key}=1" for key in sorted(AccessSettings.ACCESS_IGNORED)]
    for kind, more in ((BrokerSettings, CONTROLLED), (NamesrvSettings, []), (ControllerSettings, CONTROLLER)):
        assert not [
            line
            for line in kind.load(None, [*more, *keys]).warnings
            if "1" in line and "auth" in line.lower()
        ]


CONTROLLER = [
    "controllerDLegerGroup=g",
    "controllerDLegerPeers=n0-127.0.0.1:9878",
    "controllerDLegerSelfId=n0",
]


@pytest.mark.parametrize(("kind", "more"), [(NamesrvSettings, []), (ControllerSettings, CONTROLLER)])
def test_a_port_has_the_administrators_of_its_settings(
    kind: type[Any], more: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "first.json"
    file.write_text('{"username":"admin","password":"geheim-3"}\n')
    assert kind.load(None, [*more, SIGNED, FIRST]).administrators == {"admin": "geheim-2"}
    from_file = kind.load(None, [*more, SIGNED, f"initAuthenticationUser=file:{file}"])
    assert from_file.administrators == {"admin": "geheim-3"}
    assert "geheim" not in repr(from_file)
    assert kind.load(None, [*more, SIGNED]).administrators == {}
    missing = refused(kind, *more, SIGNED, f"initAuthenticationUser=file:{tmp_path / 'missing'}")
    assert "missing cannot be read: No such file or directory" in missing.why


def test_only_name_servers_open_a_code_by_default() -> None:
    assert NamesrvSettings.load(None, []).open_codes == {105}
    assert ControllerSettings.load(None, CONTROLLER).open_codes == frozenset()
    assert BrokerSettings.load(None, CONTROLLED).open_codes == frozenset()


@pytest.mark.parametrize("code", [17, 25, 1008, 3001, 290021, 7777])
def test_no_list_gives_each_user_what_administrators_and_servers_may(code: int) -> None:
    settings = BrokerSettings.load(
        None, [*CONTROLLED, SIGNED, RIGHTS, INNER, f"authorizationWhitelist=28,{code}"]
    )
    none: Any = None
    with pytest.raises(
        SettingsError, match=f"authorizationWhitelist=.*: {code}: these are for administrators"
    ):
        access_of(settings, none, none, none, none, none)
