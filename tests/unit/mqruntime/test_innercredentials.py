"""Credentials of a server among servers, in the form of upstream's brokers."""

from __future__ import annotations

import pytest

from mqruntime.innercredentials import InnerCredentialsSettings
from mqruntime.settings import SettingsError
from mqruntime.toolcredentials import AccessKeys

KEY = "innerClientAuthenticationCredentials"


def test_keys_are_read_and_never_shown() -> None:
    settings = InnerCredentialsSettings.load(None, [f'{KEY}={{"accessKey":"inner","secretKey":"geheim"}}'])
    assert settings.inner_keys == AccessKeys("inner", "geheim")
    assert "geheim" not in settings.effective() and "geheim" not in repr(settings)
    assert InnerCredentialsSettings.load(None, []).inner_keys is None


@pytest.mark.parametrize(
    "value", ["geheim", "{}", '{"accessKey":"geheim"}', '{"accessKey":"a","secretKey":""}', "[1]", "7"]
)
def test_other_forms_are_an_error(value: str) -> None:
    with pytest.raises(SettingsError, match='must be {"accessKey":"...","secretKey":"..."}') as caught:
        InnerCredentialsSettings.load(None, [f"{KEY}={value}"])
    assert f"{KEY}=**********" in str(caught.value) and "geheim" not in str(caught.value)
