"""Rules for modules: pure ones stay pure, no import circles, none is too long.

A pure module uses no event loop, clock, socket, file or thread, and imports no module that does. Tests drive
it with literals, and the simulator runs the same code. The last word of its docstring is `Pure.`"""

from __future__ import annotations

import pytest

from tests.architecture.house import HOUSE, TREE

CORES = {
    "accesscontrol", "broker", "controller", "dledger", "epochfile", "filters", "ha", "localcluster", "messagestore",
    "mqruntime", "namesrv", "raftstore", "remoting", "sparkreplay",
}  # fmt: skip


@pytest.mark.parametrize("module", TREE.pure_modules())
def test_a_pure_module_does_not_reach_the_outside_world(module: str) -> None:
    way_out = TREE.way_out(module)
    assert way_out is None, way_out


def test_each_package_with_a_core_declares_its_pure_modules() -> None:
    assert {module.split(".")[0] for module in TREE.pure_modules()} >= CORES


def test_no_modules_import_each_other_in_a_circle() -> None:
    circles = HOUSE.circles()
    assert not circles, "\n" + "\n".join(circles)


def test_no_file_is_longer_than_the_limit() -> None:
    assert HOUSE.too_long() == []
