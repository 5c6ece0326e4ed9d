"""The name server's key-value store: namespaces of text, kept in one small file. Upstream: KVConfigManager.

Invariant: every value that `get` returns is on disk, and changes do not overlap. The file is upstream's kvConfig.json. Each
change writes the whole file, so the file has at most `BYTES_MAX` bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mqruntime.smallfiles import SmallFiles
from remoting.bodies.body import Body
from remoting.errors import BodyError

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
BYTES_MAX = 4 << 20


@dataclass(slots=True)
class KVConfigFile(Body):
    """The file's content: namespace -> key -> value."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KVConfigUnreadable(Exception):
    """The file is corrupt, or is not a name server's key-value file."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name}: {why}; restore it, remove it to start without order settings, or name another kvConfigPath"
        )


class KVConfigFull(Exception):
    """The file has no room for a value."""


class KVConfig:
    """The store in file `name`."""

    def __init__(self, files: SmallFiles, name: str) -> None:
        self._files = files
        self._name = name
        self._table: dict[str, dict[str, str]] = {}
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, if it exists. Raises KVConfigUnreadable, OSError."""
        data = await self._files.read(self._name)
        if data:
            try:
                self._table = KVConfigFile.decode(data).config_table
            except BodyError as error:
                raise KVConfigUnreadable(self._name, str(error)) from None

    def get(self, namespace: str, key: str) -> str | None:
        """The value of `key` in the namespace; None if it has none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace."""
        return dict(self._table.get(namespace, {}))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value; durable on return. Raises OSError or KVConfigFull, and then nothing is changed."""
        await self._change(namespace, key, value)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if it exists; durable on return. Raises OSError, and then nothing is changed."""
        await self._change(namespace, key, None)

    async def _change(self, namespace: str, key: str, value: str | None) -> None:
        async with self._changing:
            changed = {name: dict(values) for name, values in self._table.items()}
            values = changed.setdefault(namespace, {})
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
            if not values:
                del changed[namespace]
            data = KVConfigFile(changed).encode()
            if value is not None and len(data) > BYTES_MAX:
                raise KVConfigFull(
                    f"the configuration would have {len(data)} bytes, {BYTES_MAX} are kept; delete unused keys"
                )
            await self._files.replace(self._name, data)
            self._table = changed
