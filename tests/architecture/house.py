"""The source trees that the rules read, and which package may import which. The tables are the architecture;
docs/architecture.md describes each package."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.sourcetree import SourceTree

ROOT = Path(__file__).parent.parent.parent

MAY_IMPORT: dict[str, set[str]] = {
    "mqruntime": set(),
    "epochfile": {"mqruntime"},
    "nativepath": set(),
    "remoting": {"nativepath", "mqruntime"},
    "accesscontrol": {"nativepath", "remoting", "mqruntime"},
    "messagestore": {"nativepath", "mqruntime"},
    "ha": {"epochfile", "mqruntime"},
    "dledger": {"accesscontrol", "nativepath", "remoting", "mqruntime"},
    "raftstore": {"accesscontrol", "dledger", "epochfile", "ha", "messagestore", "remoting", "mqruntime"},
    "controller": {"accesscontrol", "dledger", "remoting", "mqruntime"},
    "filters": set(),
    "broker": {
        "accesscontrol",
        "filters",
        "ha",
        "epochfile",
        "messagestore",
        "raftstore",
        "remoting",
        "nativepath",
        "mqruntime",
    },
    "namesrv": {"accesscontrol", "remoting", "mqruntime"},
    "mqclient": {"remoting", "mqruntime"},
    "mqadmin": {"accesscontrol", "mqclient", "remoting", "mqruntime"},
    "sparkreplay": {"messagestore", "epochfile", "mqclient"},
    "localcluster": {"dledger", "mqclient", "mqadmin", "sparkreplay", "remoting", "mqruntime"},
}
"""Package -> our packages that it may import. localcluster runs mqreplay's reader in the quickstart, and is a
client of the members of a Raft-mode set."""

ALSO_ALLOWED = {
    "namesrv/__main__.py": {"controller"},
    "sparkreplay/commands/resend.py": {"mqruntime"},
    "sparkreplay/resend/job.py": {"mqruntime"},
    "sparkreplay/resend/lane.py": {"remoting"},
    "sparkreplay/store/livebroker.py": {"mqruntime"},
}
"""The name server's process may carry a controller inside (enableControllerInNamesrv). A resend gives the
client its clock, and distinguishes refusals by their codes. One module checks all addresses."""

WITH_A_DOOR = {ROOT / name / "__init__.py" for name in ("sparkreplay", "dledger", "mqclient")}
"""Markers with code: the public interfaces `sparkreplay.register` and `sparkreplay.open`, `dledger.DLedger`,
and `mqclient.Client`."""

TREE = SourceTree(ROOT, MAY_IMPORT)
"""The product."""
HOUSE = SourceTree(ROOT, [*MAY_IMPORT, "simulation", "scripts"])
"""The product, the simulation and the scripts."""
