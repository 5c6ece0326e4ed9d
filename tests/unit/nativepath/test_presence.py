"""A foreign or broken compiled module is not loaded, with a reason; nothing else fails."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nativepath import presence


class Import:
    """Replaces import_module: returns or raises `found`."""

    def __init__(self, found: object) -> None:
        self.found = found

    def __call__(self, name: str) -> object:
        assert name == "nativepath.native"
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (ImportError("No module named 'nativepath.native'"), "not built: No module named"),
        (ImportError("native.abi3.so: invalid ELF header"), "not built: native.abi3.so: invalid ELF header"),
        (RuntimeError("made for another Python"), "RuntimeError: made for another Python; install this project again"),
        (SystemError("initialization failed"), "SystemError: initialization failed; install this project again"),
        (SimpleNamespace(), "built from other sources; install this project again"),  # a folder of that name, too
        (SimpleNamespace(SOURCES=presence.SOURCES - 1), "built from other sources; install this project again"),
    ],
)  # fmt: skip
def test_an_unusable_native_module_is_not_loaded_and_the_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, found: object, word: str
) -> None:
    monkeypatch.delenv(presence.SWITCH, raising=False)
    monkeypatch.setattr(presence, "import_module", Import(found))
    native, why_not = presence._loaded()
    assert native is None and word in why_not


def test_a_matching_native_module_is_used_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = SimpleNamespace(SOURCES=presence.SOURCES)
    monkeypatch.setattr(presence, "import_module", Import(fitting))
    monkeypatch.setenv(presence.SWITCH, "on")
    assert presence._loaded() == (fitting, "")
    monkeypatch.setenv(presence.SWITCH, "OFF")
    assert presence._loaded() == (None, "switched off by AUTOSWITCH_NATIVE")
