"""A server command for the tests of mqruntime.serve: `python demoserver.py [options]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic import Field

from mqruntime.runtime import RestartWanted, Runtime, StartRefused
from mqruntime.serve import main
from mqruntime.settings import Settings


class DemoSettings(Settings):
    root: Path = Field(Path("store"), alias="storePathRootDir")
    mode: str = Field("serve", alias="mode")


class DemoFailed(Exception):
    """A typed error, as the packages raise them."""


class DemoTableDamaged(StartRefused):
    """A file below the store root that no start can use."""


class DemoApp:
    def __init__(self, settings: DemoSettings, runtime: Runtime) -> None:
        self._mode = settings.mode
        self._runtime = runtime
        if self._mode == "unmakable":
            raise DemoFailed("peers of controllerDLegerPeers are not id-host:port")

    async def start(self) -> None:
        if self._mode == "typed":
            raise DemoFailed("port 1 is taken; choose another listenPort")
        if self._mode == "damaged":
            raise DemoTableDamaged("table.json: the file is empty; restore it from another replica")
        if self._mode == "bug":
            raise KeyError("bug")
        await self._runtime.files.replace("started", b"yes")
        sys.stdout.write("started\n")
        sys.stdout.flush()

    async def stop(self) -> None:
        if self._mode == "stuck":
            sys.stdout.write("stopping\n")
            sys.stdout.flush()
            await asyncio.get_running_loop().create_future()
        if self._mode == "unstoppable":
            raise DemoFailed("the log cannot be flushed")
        await self._runtime.files.replace("stopped", b"yes")

    async def wait_failed(self) -> BaseException:
        if self._mode == "fatal":
            return OSError(5, "Input/output error", "commitlog/0")
        if self._mode == "restarts" and await self._runtime.files.read("restarted") is None:
            await self._runtime.files.replace("restarted", b"yes")
            return RestartWanted()
        return await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    sys.exit(main("mqdemo", DemoSettings, DemoApp, lambda settings: settings.root))
