"""The wheel: the packages and the commands, and nothing of tests, simulation, scripts or bench."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "accesscontrol", "broker", "controller", "dledger", "epochfile", "filters", "ha", "localcluster", "messagestore",
    "mqadmin", "mqclient", "mqruntime", "namesrv", "nativepath", "raftstore", "remoting", "sparkreplay",
}  # fmt: skip
TYPED = {f"{package}/py.typed" for package in ("mqclient", "mqruntime", "remoting")}
"""Marks that programs which use the client are checked against its types (PEP 561)."""
COMPILED = "nativepath/native.abi3.so"
KEPT_OUT = ("tests", "simulation", "scripts", "bench")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory, os.environ)


def built(tmp_path_factory: pytest.TempPathFactory, environment: Mapping[str, str]) -> Path:
    """Builds the wheel from a copy of the source, without the network."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in (*PACKAGES, *KEPT_OUT):
        ignored = shutil.ignore_patterns("__pycache__", "vectors", "*.so", "*.c")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    made = subprocess.run(
        [*command, "-q", "-w", str(out), str(source)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    [path] = out.glob("*.whl")
    return path


def test_the_wheel_holds_exactly_the_modules_of_the_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in names if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in modules} == PACKAGES
    compiled = {name for name in modules if name.endswith(".so")}
    if compiled:  # where there is a compiler
        assert compiled == {COMPILED} and "-cp311-abi3-" in wheel.name
    assert modules >= TYPED
    assert modules - compiled - TYPED - {"nativepath/native.pyi"} == {
        str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.long
def test_a_wheel_without_a_compiler_holds_all_but_the_compiled_module(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    wheel = built(tmp_path_factory, {**os.environ, "CC": shutil.which("false") or "false"})
    names = zipfile.ZipFile(wheel).namelist()
    assert COMPILED not in names and "nativepath/presence.py" in names and "broker/__main__.py" in names


def test_the_wheel_declares_the_commands(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        parser = configparser.ConfigParser()
        parser.read_string(archive.read(name).decode())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert dict(parser["console_scripts"]) == declared["scripts"]
    assert set(declared["scripts"]) >= {"mqnamesrv", "mqcontroller", "mqbroker", "mqadmin", "mqreplay"}


@pytest.mark.parametrize("module", ["namesrv", "controller", "broker"])
def test_servers_of_the_wheel_print_their_version(wheel: Path, tmp_path: Path, module: str) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    shown = subprocess.run(
        [sys.executable, "-P", "-m", module, "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (shown.returncode, shown.stdout) == (0, f"mq{module} {version}\n"), shown.stderr
