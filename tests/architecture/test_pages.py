"""The pages that are generated from the code are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.settings.broker import BrokerSettings
from controller.settings import ControllerSettings
from mqruntime.settings import Settings
from namesrv.settings import NamesrvSettings

ROOT = Path(__file__).parents[2]


def test_the_generated_pages_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "scripts.pages", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("settings_class", [BrokerSettings, ControllerSettings, NamesrvSettings])
def test_documented_upstream_settings_are_existing_keys(settings_class: type[Settings]) -> None:
    assert set(settings_class.UPSTREAM) <= set(settings_class.keys())
    assert not settings_class.IGNORED & set(settings_class.keys()), "a key that is ignored is not read"
