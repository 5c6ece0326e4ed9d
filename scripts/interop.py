"""Run our clients and servers with every client and server of Apache RocketMQ with which they must work, and print the matrix.

    scripts/interop [--only clients,sets] [--failovers 20] [--migrations 3] [--page]

Cells are run one after the other, each with separate processes. The exit code is 1 if a cell fails or cannot be run. The
folder of a fleet that failed is kept, and its name is printed. With --page the table in docs/compatibility.md is replaced."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scripts.bench.options import bounded, options
from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.javapeer import NEWER, OLDER, PEERS_VERSION
from scripts.peers.migration import migrated
from scripts.peers.mixes import failovers

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
MATRIX = re.compile(r"(?<=<!-- scripts/interop -->\n).*?(?=<!-- end -->)", re.DOTALL)
TESTS = "tests/interop/"
START_MS_MAX = 300_000
JAVA, OLD, CPP, DLEDGER = OLDER, "4.9.8", "0.4.4", "0.3.1.2"
NEWER_CLIENT = "5.5.0"
"""The newest published version of client, tools and name server."""
CONTROLLERS = ["controller-0", "controller-1", "controller-2"]
BROKERS = ["broker-0", "broker-1", "broker-2"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a cell. `counts` is for a person. `why` is the failure, if there was one."""

    counts: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. `peer` is the judge, with its version."""

    group: str
    peer: str
    what: str
    run: Callable[[], Result]


def tests(*paths: str, version: str = OLDER) -> Result:
    """Run pytest with Java's peers of `version`. A skipped test has shown nothing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tally = Path(folder) / "tally"
        command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder}/files"]
        done = subprocess.run(
            [*command, *(TESTS + path for path in paths)],
            cwd=ROOT, env={**os.environ, "TALLY_FILE": str(tally), PEERS_VERSION: version}, capture_output=True, text=True,
        )  # fmt: skip
        tally_of_run = json.loads(tally.read_text()) if tally.exists() else {"counts": {}, "skips": {}}
    counts = tally_of_run["counts"]
    line = f"{counts.get('passed', 0)} tests"
    if counts.get("failed") or not counts.get("passed") or done.returncode:
        return Result(line, done.stdout[-3000:])
    return Result(line, "; ".join(tally_of_run["skips"]))


def of_fleet(
    java: Iterable[str],
    contract: str,
    judge: Callable[[Fleet], tuple[str, list[str]]],
    version: str = OLDER,
    *,
    secure: bool = False,
) -> Result:
    """Run `judge` on a whole fleet, which returns counts and faults. Java's servers are of `version`. In a `secure` fleet
    brokers check users, and connections use TLS."""
    why = fleet_missing(version)
    if why is not None:
        return Result("", why)
    folder = Path(tempfile.mkdtemp(prefix="autoswitch-mq-interop-"))
    named = [*java]
    controllers = 3 if CONTROLLERS[0] in named else 1
    counts, faults = "", ["it was not whole"]
    with Fleet.made(
        folder / "fleet",
        java=named,
        controllers=controllers,
        brokers=3,
        contract=contract,
        version=version,
        secure=secure,
    ) as fleet:
        try:
            asyncio.run(fleet.begin(timeout_ms=START_MS_MAX))
            counts, faults = judge(fleet)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this cell's failure and no other's
            faults = [f"{type(error).__name__}: {error}"]
        fleet.kill(fleet.layout.names)
    if faults:
        return Result(counts, "\n".join([f"its files are in {folder}", *faults]))
    if fleet.stalls:
        print(f"  the stacks of hanging processes are in the logs of {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return Result(counts)


def failed_over(fleet: Fleet, *, count: int, facts: bool = False) -> tuple[str, list[str]]:
    outcome = asyncio.run(failovers(fleet, count, facts=facts))
    masters = {name for name, times in outcome.masters.items() if times}
    counts = (
        f"{count} failovers, {outcome.verdict.acknowledged:,} acknowledged, {len(outcome.verdict.lost)} lost"
    )
    if fleet.restarts:
        counts += f"; {fleet.restarts.total()} times a Java slave followed a former master and was restarted"
    if fleet.stalls:
        counts += f"; {fleet.stalls.total()} times a Java slave was in no SyncStateSet for 1 to 3 minutes"
    idle = [f"{name} was never master" for name in fleet.layout.broker_names if facts and name not in masters]
    return counts, [*outcome.verdict.faults, *idle]


def migrated_times(*, times: int) -> Result:
    """Migrate several times, each time a set of three brokers with three controllers."""
    done: list[str] = []
    for number in range(times):
        result = of_fleet(["namesrv", *CONTROLLERS, *BROKERS], "C", partial(migrated_once, seed=number))
        done.append(result.counts)
        if result.why:
            return Result("; ".join(done), result.why)
    return Result("; ".join(done))


def migrated_once(fleet: Fleet, *, seed: int) -> tuple[str, list[str]]:
    say = partial(print, "   ", flush=True)
    verdict, unused = asyncio.run(migrated(fleet, seed=seed, say=say))
    faults = [f"docs/migration.md has {command!r}, and it was not run" for command in unused]
    return f"{verdict.acknowledged:,} acknowledged, {len(verdict.lost)} lost", [*verdict.faults, *faults]


def cells(count: int, times: int) -> list[Cell]:
    over = partial(failed_over, count=count)
    mixed = partial(failed_over, count=count, facts=True)
    java, cpp = f"Java client {JAVA}", f"C++ client {CPP}"
    newer = "test_newer_java.py"
    return [
        Cell("clients", java, "sends, reads, retries, order; killed masters",
             partial(tests, "test_java_client.py", "test_java_consumers.py", FIRST_JAVA)),
        Cell("clients", java, "transactions; killed masters; a store goes on from Java's broker to ours and back",
             partial(tests, "test_java_transactions.py")),
        Cell("clients", java, "a set in Raft mode; its leader killed, its followers read",
             partial(tests, "test_java_client_in_raft_mode.py")),
        Cell("clients", f"Java's filters {JAVA}", "3,000 SQL92 expressions, each on six messages; the file that keeps them",
             partial(tests, "test_java_filters.py")),
        Cell("clients", f"DLedgerClient {DLEDGER}", "appends, gets, hands over; our group",
             partial(tests, "test_java_dledger_client.py")),
        Cell("clients", cpp, "sends, reads, retries, order, also of what it refuses; killed masters",
             partial(tests, "test_cpp_client.py", FIRST_CPP)),
        Cell("clients", f"Java mqadmin {JAVA}", "its commands on ours",
             partial(tests, "test_java_admin.py", "test_java_admin_commands.py")),
        Cell("clients", f"Java client {NEWER_CLIENT}", "sends, reads, retries, order, transactions; killed masters",
             partial(tests, "test_java_client.py", "test_java_consumers.py", "test_java_transactions.py", version=NEWER)),
        Cell("clients", f"Java mqadmin {NEWER_CLIENT}", "what it reads of queues, resets, clones; each command named",
             partial(tests, newer, version=OLDER)),
        Cell("security", f"Java client and mqadmin {JAVA}",
             "signed, over TLS with certificates at both ends; `electMaster`, a killed master",
             partial(tests, *SECURE_CLIENT)),
        Cell("security", f"Java client and mqadmin {NEWER_CLIENT}", "the same",
             partial(tests, *SECURE_CLIENT, version=NEWER)),
        Cell("security", f"Java mqadmin {JAVA}", "our users and policies: 57 commands print what they print on Java's brokers",
             partial(tests, "test_java_guarded_cluster.py")),
        Cell("security", f"Java mqadmin {NEWER_CLIENT}", "the same",
             partial(tests, "test_java_guarded_cluster.py", version=NEWER)),
        Cell("security", f"Java clients {JAVA}, {NEWER_CLIENT} and {OLD}",
             "each with the rights of its task only; refusals; revoked rights; `electMaster`",
             partial(tests, "test_java_rights.py")),
        Cell("security", cpp, "the same, without TLS, which it does not have",
             partial(tests, "test_cpp_rights.py")),
        Cell("security", f"Java brokers {JAVA}", "they check users: our client, tools and slave",
             partial(tests, "test_java_access_control.py", "test_java_access_commands.py")),
        Cell("security", f"Java brokers {JAVA}",
             "one Java broker, one here, both check users; TLS on all but the replication stream, or signatures only",
             partial(tests, *SECURE_BROKERS)),
        Cell("security", f"Java brokers {JAVA}", "two Java brokers, one here, contract C, which check users; TLS",
             partial(of_fleet, BROKERS[:2], "C", over, secure=True)),
        Cell("security", f"Java controllers and name server {JAVA}",
             "they check nobody, and our brokers do; TLS, or signatures only",
             partial(tests, SECURE_CONTROLLERS)),
        Cell("security", f"Java brokers {JAVA}", "which check users, under our controllers and name server, which do; TLS",
             partial(of_fleet, BROKERS, "C", over, secure=True)),
        Cell("hand-over", f"Java clients {JAVA} and {OLD}",
             "send, read, pull, keep order, transactions; defaults, but sends may take 20 s: `electMaster`, SIGTERM",
             partial(tests, "test_java_hand_over.py")),
        Cell("controllers", f"Java brokers {JAVA}", "under our controllers and name server",
             partial(of_fleet, BROKERS, "C", over)),
        Cell("controllers", f"Java controllers and name server {JAVA}", "with our brokers",
             partial(of_fleet, ["namesrv", *CONTROLLERS], "C", over)),
        Cell("controllers", f"Java brokers {NEWER}", "under our controllers and name server",
             partial(of_fleet, BROKERS, "C", over, NEWER)),
        Cell("controllers", f"Java controllers {NEWER}, name server {NEWER_CLIENT}", "with our brokers",
             partial(of_fleet, ["namesrv", *CONTROLLERS], "C", over, NEWER)),
        Cell("controllers", f"Java controllers {JAVA}", "their stores go on in ours, and back",
             partial(tests, "test_java_controllers.py")),
        Cell("controllers", f"Java controllers {NEWER}", "their stores go on in ours, and back",
             partial(tests, "test_java_controllers.py", version=NEWER)),
        Cell("sets", f"Java brokers {JAVA}", "one Java broker, two here, contract B",
             partial(of_fleet, BROKERS[:1], "B", mixed)),
        Cell("sets", f"Java brokers {JAVA}", "two Java brokers, one here, contract C",
             partial(of_fleet, BROKERS[:2], "C", mixed)),
        Cell("sets", f"Java brokers {JAVA}", "one Java broker, one here, either the master; shrunk, and whole again",
             partial(tests, SHRINKS)),
        Cell("sets", f"Java brokers {NEWER}", "two Java brokers, one here, contract C",
             partial(of_fleet, BROKERS[:2], "C", over, NEWER)),  # 5.5.1 forgets consumerFilter.json: no facts
        Cell("sets", f"Java brokers {JAVA} and {NEWER}", "elections without a message in between; Java's store goes on in ours",
             partial(tests, *(f"{QUIET_ELECTION}[{each}]" for each in (JAVA, NEWER)))),
        Cell("pairs", f"Java brokers {JAVA}", "Java master, our slave, and the reverse; slave reads",
             partial(tests, *PAIRS)),
        Cell("stores", f"Java brokers {JAVA}", "Java's go on in ours, and back; SIGTERM, SIGKILL; records' CRCs",
             partial(tests, *STORES)),
        Cell("stores", f"Java brokers {JAVA}", "stores of Raft mode, there and back",
             partial(tests, "test_java_raft_mode.py", "test_java_raft_mode_and_ours.py", "test_java_raft_stores.py")),
        Cell("migration", f"all of Java {JAVA}", f"a live set to ours, server by server, and back, {times} times",
             partial(migrated_times, times=times)),
    ]  # fmt: skip


SECURE_CLIENT = (
    "test_java_tls.py::test_java_client_and_tools_work_over_tls",
    "test_java_tls.py::test_a_java_client_that_signs_loses_nothing_at_an_election_and_a_kill",
)
SECURE_BROKERS = (
    "test_java_tls.py::test_a_java_broker_and_ours_that_sign_fail_over_and_refuse_nothing",
    "test_java_tls.py::test_users_reach_a_java_broker_by_the_tool_only",
)
SECURE_CONTROLLERS = "test_java_tls.py::test_our_guarded_brokers_fail_over_under_java_controllers"
FIRST_JAVA = "test_first_programs.py::test_the_first_program_for_java_sends_and_reads"
FIRST_CPP = "test_first_programs.py::test_the_first_program_for_cpp_sends_and_reads"
SHRINKS = (
    "test_java_mixed_set.py::test_a_set_of_a_java_broker_and_ours_shrinks_and_recovers_under_either_master"
)
QUIET_ELECTION = "test_newer_java.py::test_a_java_master_elected_without_messages_in_between_is_followed"
PAIRS = (
    "test_java_pairs.py::test_our_slave_follows_a_java_master_through_kills_of_either",
    "test_java_pairs.py::test_a_java_slave_follows_our_master_through_kills_of_either",
    "test_java_pairs.py::test_our_slave_refuses_a_java_master_that_returns_with_another_log",
)
STORES = (
    "test_java_pairs.py::test_a_java_store_is_continued_by_our_broker_and_by_java_again",
    "test_java_pairs.py::test_a_java_broker_verifies_the_record_crcs_that_ours_wrote",
)
"""Whole names of tests. tests/architecture checks that they exist."""


def row(cell: Cell, result: Result) -> str:
    return f"| {cell.peer} | {cell.what} | {'FAIL' if result.why else 'pass'} | {result.counts} |"


def main() -> int:
    parser = options(__doc__)
    groups = list(dict.fromkeys(cell.group for cell in cells(1, 1)))
    parser.add_argument("--only", default=",".join(groups), help=f"some of {','.join(groups)}")
    parser.add_argument("--failovers", type=bounded(2, 200), default=20, help="of each fleet; half are kills")
    parser.add_argument("--migrations", type=bounded(1, 20), default=3)
    parser.add_argument(
        "--page", action="store_true", help="write the table of docs/compatibility.md; needs all cells"
    )
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    unknown = [name for name in chosen if name not in groups]
    if unknown:
        parser.error(f"no cells {unknown[0]!r}; there are {', '.join(groups)}")
    if arguments.page and set(chosen) != set(groups):
        parser.error("--page is of all cells; leave --only out")
    rows, failed = [], 0
    for cell in cells(arguments.failovers, arguments.migrations):
        if cell.group not in chosen:
            continue
        print(f"{cell.group}: {cell.peer}, {cell.what} ...", flush=True)
        began_s = time.monotonic()
        result = cell.run()
        failed += bool(result.why)
        rows.append(row(cell, result))
        print(
            f"  {'FAIL ' + result.why if result.why else 'pass'}; {time.monotonic() - began_s:.0f} s",
            flush=True,
        )
    heading = ["| peer | what | result | counts |", "|---|---|---|---|"]
    table = "\n".join([*heading, *rows]) + "\n"
    print(f"\n{table}\n{len(rows)} cells, {failed} failed")
    if arguments.page:
        PAGE.write_text(MATRIX.sub(lambda _: table, PAGE.read_text()))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
