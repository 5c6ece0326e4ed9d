"""The process that modules are run in forks of: `python -m tests.moduleforks`, told by lines on stdin. Most of what a
`python -m MODULE --help` takes is imports, which this one has done.

    MODULE ARGUMENTS    runs its `__main__` as its command would; {"code", "said"}: how it ended, and stdout and stderr"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
from importlib import import_module

from tests.serverforks import IMPORTED

SHARED = (
    *IMPORTED,
    "localcluster.cluster",
    "localcluster.drill",
    "mqadmin.admin",
    "mqclient.client",
    "pyarrow.parquet",
)


def outcome(module: str, arguments: list[str]) -> dict[str, object]:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        sys.exit()
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status), "said": said}


def main() -> None:
    for name in SHARED:
        import_module(name)
    gc.collect()
    gc.freeze()  # what all share stays shared
    for line in iter(sys.stdin.readline, ""):
        module, *arguments = line.split()
        print(json.dumps(outcome(module, arguments)), flush=True)


if __name__ == "__main__":
    main()
