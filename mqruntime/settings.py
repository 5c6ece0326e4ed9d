"""Settings of one server, read from upstream's properties files.

Invariant: an accepted value has its type and range; a key or value that was not understood is named in `warnings` or raised as
SettingsError, never ignored silently."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from mqruntime.properties import PropertiesError, PropertyLine, parse

COMMAND_LINE = "command line"
HIDDEN = "**********"
"""Shown in place of a password."""
OURS = "-"
"""In `UPSTREAM`: a key that upstream does not have."""


def is_secret(key: str) -> bool:
    """Whether values of this setting are never shown. A misspelt key counts, too."""
    return any(
        part in key.lower() for part in ("passw", "pasw", "secret", "credential", "authenticationuser")
    )


class SettingsError(ValueError):
    """An unusable setting; the text has the setting, its place and the accepted values."""

    def __init__(self, key: str, value: str, file: str, line: int | None, why: str) -> None:
        place = f"{file}:{line}" if line is not None else file
        value = HIDDEN if value and is_secret(key) else value
        super().__init__(f"{place}: {key}={value}: {why}" if key else f"{place}: {why}")
        self.key = key
        self.value = value
        self.file = file
        self.line = line
        self.why = why


class Settings(BaseModel):
    """Base of each server's settings: one field per upstream key, the key being the field's alias.

    A subclass lists in `IGNORED` upstream keys that it knows and does not use, so that a Java broker's file loads without
    noise; in `WITHOUT_EFFECT` keys whose missing effect an operator must know, with the actual behaviour, for a warning; and
    in `UPSTREAM` the defaults in which upstream differs, for comparison."""

    model_config = ConfigDict(validate_assignment=True, populate_by_name=True, extra="forbid")
    IGNORED: ClassVar[frozenset[str]] = frozenset()
    WITHOUT_EFFECT: ClassVar[dict[str, str]] = {}
    UPSTREAM: ClassVar[dict[str, str]] = {}

    _warnings: list[str] = PrivateAttr(default_factory=list)
    _place: str = PrivateAttr("settings")

    @property
    def warnings(self) -> list[str]:
        """Warnings of `load`, one line each, in file order, and then conflicts between settings."""
        return self._warnings

    @property
    def place(self) -> str:
        """Where a missing key belongs: the file, if there is one."""
        return self._place

    @classmethod
    def load(
        cls,
        path: Path | None,
        overrides: list[str] | None = None,
        *,
        strict: bool = False,
        others: Sequence[type[Settings]] = (),
    ) -> Self:
        """Defaults, then the file, then `KEY=VALUE` overrides; with `strict` a warning is a SettingsError. The servers
        `others` take their own keys from the same file; each of them warns of a key that none of them knows."""
        entries, warnings = _entries(path, overrides or [])
        keys = cls.keys()
        theirs = frozenset(key for other in others for key in (*other.keys(), *other.IGNORED))
        known = [*keys, *theirs]
        chosen: dict[str, tuple[PropertyLine, str]] = {}
        for entry, file in entries:
            if entry.key in keys:
                chosen[entry.key] = (entry, file)
                if entry.in_xml_comment:
                    warnings.append(
                        f"{file}:{entry.line}: {entry.key} counts although it is inside <!-- -->; only # begins a comment"
                    )
            elif entry.key not in cls.IGNORED | theirs and not entry.in_xml_comment:
                why = cls.WITHOUT_EFFECT.get(entry.key) or _unknown(entry.key, known)
                if strict:
                    raise SettingsError(entry.key, entry.value, file, entry.line or None, why)
                warnings.append(f"{file}{f':{entry.line}' if entry.line else ''}: {entry.key}: {why}")
        values = {key: _java_value(entry.value) for key, (entry, _) in chosen.items()}
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            raise cls._explained(error, chosen, path) from None
        settings._warnings.extend(warnings)
        settings._place = COMMAND_LINE if path is None else str(path)
        if strict and settings.warnings:
            raise SettingsError("", "", str(path), None, settings.warnings[0])
        return settings

    @field_validator("*", mode="before")
    @classmethod
    def _path(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject an empty path, which would be the current folder, and expand `~`."""
        if cls.model_fields[info.field_name or ""].annotation is not Path:
            return value
        if not str(value).strip():
            raise ValueError("must name a file or a folder")
        return Path(value).expanduser()

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any, info: ValidationInfo) -> Any:
        """Treat an empty value of an optional key, as `effective` writes it, as absent."""
        may_be_absent = NoneType in get_args(cls.model_fields[info.field_name or ""].annotation)
        return None if may_be_absent and isinstance(value, str) and not value.strip() else value

    @field_validator("*", mode="after")
    @classmethod
    def _fits_64_bits(cls, value: Any) -> Any:
        """Reject numbers beyond 64 bits: settings go into messages between servers, which carry no larger ones."""
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError("is no number of 64 bits")
        return value

    @property
    def checks_users(self) -> bool:
        """Whether requests need signatures."""
        return False

    @property
    def log_files(self) -> dict[str, Path]:
        """The loggers that have a file of their own."""
        return {}

    @property
    def listens_on(self) -> str | None:
        """The host that the ports are opened on; None for settings without one."""
        return None

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Upstream key -> attribute, in the order of declaration."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    def in_force(self) -> dict[str, Any]:
        """Upstream key -> current value."""
        return {key: getattr(self, name) for key, name in self.keys().items()}

    def effective(self) -> str:
        """Every key with its current value: sorted `key=value` lines."""
        return "".join(f"{key}={text_of(value)}\n" for key, value in sorted(self.in_force().items()))

    @classmethod
    def _explained(
        cls, error: ValidationError, chosen: dict[str, tuple[PropertyLine, str]], path: Path | None
    ) -> SettingsError:
        """A missing key is reported for the file, if there is one."""
        first = error.errors(include_url=False)[0]
        why = in_words(first["msg"])
        name = str(first["loc"][0]) if first["loc"] else ""
        field = cls.model_fields.get(cls.keys().get(name, name))
        key = (field.alias or name) if field else name
        if key not in chosen:
            file = COMMAND_LINE if path is None else str(path)
            return SettingsError(key, "", file, None, "must be set" if first["type"] == "missing" else why)
        entry, file = chosen[key]
        return SettingsError(key, entry.value, file, entry.line or None, why)


def _entries(path: Path | None, overrides: list[str]) -> tuple[list[tuple[PropertyLine, str]], list[str]]:
    """Settings in rising precedence, each with its file (line 0: the command line), and warnings."""
    entries: list[tuple[PropertyLine, str]] = []
    warnings: list[str] = []
    if path is not None:
        try:
            parsed = parse(path.read_bytes())
        except OSError as error:
            raise SettingsError("", "", str(path), None, f"cannot be read: {error.strerror}") from None
        except PropertiesError as error:
            raise SettingsError("", "", str(path), error.line, error.why) from None
        entries += [(entry, str(path)) for entry in parsed.entries]
        warnings += [f"{path}: {warning}" for warning in parsed.warnings]
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise SettingsError("", "", COMMAND_LINE, None, f"{override!r} is not KEY=VALUE")
        entries.append((PropertyLine(key.strip(), value.strip(), 0), COMMAND_LINE))
    return entries, warnings


def _unknown(key: str, keys: Sequence[str]) -> str:
    folded = {known.lower(): known for known in sorted(keys)}
    near = difflib.get_close_matches(key.lower(), folded, n=1)
    return f"unknown setting; did you mean {folded[near[0]]}?" if near else "unknown setting, ignored"


def _java_value(text: str) -> str:
    """Lower-case booleans: Java's Boolean.parseBoolean accepts any case, pydantic only some."""
    return text.lower() if text.lower() in ("true", "false") else text


def in_words(message: str) -> str:
    """The message of a failed check, without pydantic's prefix."""
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")


def text_of(value: Any) -> str:
    """A value as it is written in a properties file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    return "" if value is None else str(value)
