"""The process that modules are run in forks of: `python -m tests.support.moduleforks`, which reads lines from stdin. Most of
what a `python -m MODULE --help` takes is imports, which this one has done.

    ["MODULE", "ARGUMENT", ...]    runs its `__main__` as its command would; {"code", "out", "err"}"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
from importlib import import_module
from tempfile import TemporaryFile

from tests.support.serverforks import IMPORTED

SHARED = (
    *IMPORTED,
    "localcluster.cluster",
    "localcluster.drill",
    "mqadmin.admin",
    "mqclient.client",
    "pyarrow.parquet",
)


def outcome(module: str, arguments: list[str]) -> dict[str, object]:
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err, open(os.devnull) as nothing:
        pid = os.fork()
        if not pid:
            for number, file in enumerate((nothing, out, err)):
                os.dup2(file.fileno(), number)
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            sys.exit()
        _, status = os.waitpid(pid, 0)
        for file in (out, err):
            file.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "out": out.read(), "err": err.read()}


def main() -> None:
    for name in SHARED:
        import_module(name)
    gc.collect()
    gc.freeze()  # what all share stays shared
    for line in iter(sys.stdin.readline, ""):
        module, *arguments = json.loads(line)
        print(json.dumps(outcome(module, arguments)), flush=True)


if __name__ == "__main__":
    main()
