"""Every decoder on hostile bytes, for a while: python -m simulation.fuzz [--seconds 60] [--seed 1] [--only NAME,NAME]

Each target gets an equal part of the time, and begins with its examples. For each target the command prints how many inputs it
tried, how many of them ran new lines, and how many lines ran of the functions that were entered. A finding is printed with its
input in hexadecimal, and the exit code is then 1; `--only NAME --input HEX` runs that input alone. With `--inputs N` each
target gets N inputs instead of a time, and the same seed does the same anywhere. The compiled module may end the process
instead of raising, so `--last FILE` stores each input before it is tried."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from simulation.fuzz.campaign import Campaign, Finding, Target
from simulation.fuzz.disktargets import DISK
from simulation.fuzz.lines import Lines
from simulation.fuzz.wiretargets import WIRE

TARGETS = [*WIRE, *DISK]
ROOT = Path(__file__).parents[2]
PACKAGES = (
    "remoting", "accesscontrol", "ha", "messagestore", "epochfile", "dledger", "raftstore", "controller", "filters", "broker",
    "mqclient", "mqruntime", "sparkreplay",
)  # fmt: skip


def campaign_of(target: Target, seed: int, keep: Callable[[bytes], None] | None = None) -> Campaign:
    """The campaign of a target. It is the same for the same name and seed, whatever other targets run."""
    return Campaign(target, Lines(ROOT, PACKAGES), Random(f"{seed} {target.name}"), keep)


def keeper(path: Path) -> Callable[[bytes], None]:
    """Store each input in the file before it is tried, so that it is there even if the process ends."""

    def keep(data: bytes) -> None:
        path.write_bytes(data)

    return keep


def run(campaign: Campaign, *, inputs: int, seconds: float) -> None:
    """Run `inputs` inputs, or as many as `seconds` allow."""
    ends = time.monotonic() + seconds
    while campaign.inputs < inputs if inputs else time.monotonic() < ends:
        campaign.step()


def shown(finding: Finding) -> str:
    return (
        f"FAILED {finding.target}: {finding.why}\n  at {finding.where}\n"
        f"  python -m simulation.fuzz --only '{finding.target}' --input {finding.data.hex()}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="of all targets together (%(default)s)")
    parser.add_argument("--inputs", type=int, default=0, help="of each target, instead of seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="names of targets, with commas between")
    parser.add_argument("--input", default=None, help="hexadecimal: this one alone, and its error is raised")
    parser.add_argument("--last", default=None, help="a file for the input that is tried")
    parser.add_argument("--missed", action="store_true", help="also the lines that no input ran")
    wanted = parser.parse_args()
    names = [name.strip() for name in wanted.only.split(",") if name.strip()]
    if unknown := sorted({*names} - {target.name for target in TARGETS}):
        parser.error(
            f"no target {', '.join(unknown)}; there are {', '.join(target.name for target in TARGETS)}"
        )
    targets = [target for target in TARGETS if not names or target.name in names]
    if wanted.input is not None:
        for target in targets:
            target.run(bytes.fromhex(wanted.input))
        return 0
    print(f"{'target':24} {'inputs':>8} {'led on':>7} {'lines':>11}", flush=True)
    findings: list[Finding] = []
    keep = keeper(Path(wanted.last)) if wanted.last else None
    for target in targets:
        campaign = campaign_of(target, wanted.seed, keep)
        run(campaign, inputs=wanted.inputs, seconds=wanted.seconds / len(targets))
        ran, there = campaign.lines.counts()
        led_on = len(campaign.corpus) - len(target.seeds)
        print(f"{target.name:24} {campaign.inputs:8} {led_on:7} {ran:5}/{there:5}", flush=True)
        if wanted.missed:
            for name, lines in sorted(campaign.lines.missed().items()):
                print(f"    {Path(name).relative_to(ROOT)}: {' '.join(map(str, lines))}")
        findings += campaign.findings.values()
    for finding in findings:
        print(shown(finding))
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
