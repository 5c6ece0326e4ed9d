"""`scripts/prove` knows every world, prints a command that repeats a failure, and then fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from simulation.worlds import MODULES

ROOT = Path(__file__).parents[2]


def proved(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.prove", "--processes", "1", "--count", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_seed_without_a_finding_is_counted() -> None:
    ended = proved("--only", "raft", "--first", "4")
    assert ended.returncode == 0, ended.stderr
    assert "raft: 1 seeds, 0 failed" in ended.stdout


def test_crash_images_of_the_ledger_are_counted() -> None:
    ended = proved("--only", "ledger-images", "--first", "2")
    assert ended.returncode == 0, ended.stderr
    images = re.search(r"^ledger-images: 1 seeds, 0 failed, .* images (\d+)$", ended.stdout, re.MULTILINE)
    assert images is not None and int(images[1]) > 200, ended.stdout


def test_a_failure_is_printed_with_the_command_that_repeats_it() -> None:
    ended = proved("--only", "controllers", "--first", "1", "--bug", "empty-set")
    assert ended.returncode == 1
    (failure,) = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    assert failure.startswith("FAILED controllers seed 1: Violation: S2")
    assert failure.endswith("again: scripts/prove --only controllers --first 1 --count 1 --bug empty-set")


def test_a_failure_is_printed_with_its_played_and_requested_features() -> None:
    ended = proved("--only", "controllers", "--first", "1", "--bug", "empty-set", "--with", "fifty sets")
    assert ended.returncode == 1
    (failure,) = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    assert "it plays" in failure and "fifty sets" in failure.partition(" | again: ")[0]
    assert failure.endswith("--bug empty-set --with 'fifty sets'")


def test_a_feature_that_a_world_does_not_have_is_refused() -> None:
    ended = proved("--only", "controllers", "--with", "rain")
    assert ended.returncode == 2
    assert "no such feature: rain; this world has: elections, fifty sets, learner, unclean" in ended.stderr
    ended = proved("--with", "learner")
    assert ended.returncode == 2
    assert "features are of one world: name it with --only" in ended.stderr


def test_scripts_prove_runs_every_world() -> None:
    for world in (ROOT / "simulation").glob("*/world.py"):
        if world.parent.name != "kernel":
            assert f"simulation.{world.parent.name}.world" in MODULES.values()
