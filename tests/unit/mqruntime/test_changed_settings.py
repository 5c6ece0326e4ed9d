"""Changes of settings of a running server are atomic."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest
from pydantic import Field, model_validator

from mqruntime.changedsettings import SettingsRefused, asked_for, change
from mqruntime.innercredentials import InnerCredentialsSettings
from mqruntime.settings import Settings

CHANGEABLE = {"retries", "enabled"}


class ServerSettings(Settings):
    retries: int = Field(3, ge=0)
    enabled: bool = False
    home: str = Field("/srv", alias="serverHome")


def test_new_values_are_set_and_returned_and_unknown_keys_are_ignored() -> None:
    settings = ServerSettings()
    assert change(settings, b"retries=5\nserverHome=/srv\nelsewhere=1\n", CHANGEABLE) == {"retries": 5}
    assert settings.retries == 5
    assert change(settings, None, CHANGEABLE) == change(settings, b"retries=5\n", CHANGEABLE) == {}


def test_a_change_longer_than_any_settings_is_refused_unread() -> None:
    settings = ServerSettings()
    with pytest.raises(SettingsRefused, match="a change of 65537 bytes; 65536 are read"):
        change(settings, b"retries=5\n".ljust(65_537, b"#"), CHANGEABLE)
    assert settings.retries == 3
    assert change(settings, b"retries=5\n".ljust(65_536, b"#"), CHANGEABLE) == {"retries": 5}


class Exclusive(ServerSettings):
    """Two settings that exclude each other."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if {"enabled", "home"} <= self.model_fields_set:
            raise ValueError("enabled and serverHome contradict each other")
        return self


def test_unset_settings_contradict_no_change() -> None:
    settings = Exclusive(enabled=True)
    assert change(settings, b"retries=5\n", CHANGEABLE) == {"retries": 5}
    with pytest.raises(SettingsRefused, match="contradict each other"):
        change(settings, b"serverHome=/x\n", CHANGEABLE)


@pytest.mark.parametrize(
    ("body", "why", "forbidden"),
    [
        (
            b"enabled=\\uZZ\n",
            "not in the format of properties: line 1: \\uZZ is not \\u and four hexadecimal digits",
            False,
        ),
        (b"enabled=true\nretries=-1\n", "retries=-1: Input should be greater than or equal to 0", False),
        (
            b"retries=" + b"-" * 5_000,
            f"retries={'-' * 100}: Input should be a valid integer, unable to parse string as an integer",
            False,
        ),
        (b"enabled=true\nrocketmqHome=/x\n", "Can not update config in black list.", True),
        (
            b"enabled=true\nserverHome=/x\n",
            "Can not update config in black list. serverHome: change the properties file and restart",
            True,
        ),
    ],
)
def test_a_change_that_is_refused_changes_nothing(body: bytes, why: str, forbidden: bool) -> None:
    settings = ServerSettings()
    with pytest.raises(SettingsRefused) as refused:
        change(settings, body, CHANGEABLE, black_list={"rocketmqHome"})
    assert (str(refused.value), refused.value.forbidden) == (why, forbidden)
    assert settings == ServerSettings()


def test_blanks_around_a_value_count_unless_it_is_trimmed() -> None:
    settings = ServerSettings()
    with pytest.raises(SettingsRefused):
        change(settings, b"enabled=\\ true\n", CHANGEABLE)
    assert asked_for(settings, b"enabled=\\ true\n", CHANGEABLE, trimmed=True) == {"enabled": True}


@pytest.mark.parametrize(
    "value", ["file:{}/missing", "file:{}", '{{"accessKey":"a","secretKey":"b"}}', "x", ""]
)
def test_a_secret_is_refused_whatever_its_value_is(tmp_path: Path, value: str) -> None:
    """No answer shows whether a file exists or what the secret is, and no file is read."""
    settings = InnerCredentialsSettings.load(
        None, ['innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"b"}']
    )
    body = f"innerClientAuthenticationCredentials={value.format(tmp_path)}\n".encode()
    with pytest.raises(SettingsRefused) as refused:
        change(settings, body, CHANGEABLE)
    assert str(refused.value) == (
        "Can not update config in black list. innerClientAuthenticationCredentials: change the properties file and restart"
    )
