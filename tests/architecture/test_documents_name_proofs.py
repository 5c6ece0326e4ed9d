"""Each proof that a document names exists: tests by function or file, planted bugs by name, and log lines.

Otherwise a row of docs/dledger.md could name a test that no longer exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
TEST = re.compile(r"`(?:tests/[\w/]*/)?(test_\w+)(?:\.py)?`")
BUGS = re.compile(r"\bbugs? ((?:`[\w-]+`(?:, | and )?)+)")
PLANTED = re.compile(r'@(?:bug|plant\w*)\(\s*"([\w-]+)"')


@pytest.fixture(scope="module")
def tests() -> set[str]:
    files = [*(ROOT / "tests").rglob("test_*.py")]
    functions = {
        name for path in files for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.M)
    }
    return functions | {path.stem for path in files}


@pytest.fixture(scope="module")
def planted() -> set[str]:
    sources = "\n".join(path.read_text() for path in (ROOT / "simulation").rglob("*.py"))
    recorded = json.loads((ROOT / "simulation" / "foundby.json").read_text())
    return {*PLANTED.findall(sources), *(name for world in recorded.values() for name in world)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_test_named_by_a_document_exists(document: Path, tests: set[str]) -> None:
    assert not sorted({*TEST.findall(document.read_text())} - tests)


def test_the_faults_of_upstream_each_name_a_test_and_bugs_that_are_planted(
    tests: set[str], planted: set[str]
) -> None:
    text = (ROOT / "docs" / "dledger.md").read_text()
    table = text.split("## Where upstream's DLedger loses or forks a log")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert all({*TEST.findall(row[-1])} & tests for row in rows)
    named = {name for row in rows for found in BUGS.findall(row[-1]) for name in re.findall(r"[\w-]+", found)}
    assert not sorted(named - {"and"} - planted)


def test_each_equivalent_of_an_upstream_name_exists_where_documented() -> None:
    text = (ROOT / "docs" / "dledger.md").read_text().split("## Names of upstream")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    named = {name for row in rows for name in re.findall(r"`([\w./]+)`", row[1])}
    files = {name for name in named if name.endswith(".py")}
    assert len(files) > 20 and not [name for name in files if not (ROOT / name).is_file()]
    sources = {path: path.read_text() for path in (ROOT / "dledger").rglob("*.py")}
    for owner, member in (name.split(".") for name in named - files if "." in name):
        (source,) = (text for text in sources.values() if re.search(rf"^class {owner}\b", text, re.M))
        assert re.search(rf"\bdef {member}\(|^    {member}: |\bself\.{member} = ", source, re.M), member


def test_each_rule_of_the_raft_world_names_a_planted_bug_or_a_reason() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "simulation" / "raft").glob("*.py"))
    rules = set(re.findall(r'found\(\s*"([RMV]\d+)"', sources))
    text = (ROOT / "docs" / "proofs.md").read_text()
    table = text.split("## The Raft world")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert {rule for rule, _, _ in rows} == rules
    found = json.loads((ROOT / "simulation" / "foundby.json").read_text())["raft"]
    assert not [row for row in rows if row[2].strip("`") not in found and not row[2].startswith("none: ")]
    assert max(found.values()) <= 300


def test_each_guarantee_to_applications_names_a_test(tests: set[str]) -> None:
    text = (ROOT / "docs" / "proofs.md").read_text()
    table = text.split("## The applications")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 25
    assert not [row[0] for row in rows if not {*TEST.findall(row[1])} & tests and "](#" not in row[1]]


def test_planted_bugs_are_found_within_300_seeds() -> None:
    """At least six bugs of locks and transactions are in the cluster's world, where consumers and producers
    die."""
    recorded = json.loads((ROOT / "simulation" / "foundby.json").read_text())
    late = [(world, bug) for world, bugs in recorded.items() for bug, seed in bugs.items() if seed > 300]
    assert not late
    simulation = ROOT / "simulation" / "mutants" / "cluster"
    of_applications = {
        name
        for file in ("lock.py", "transaction.py")
        for name in PLANTED.findall((simulation / file).read_text())
    }
    assert len(of_applications & recorded["cluster"].keys()) >= 6


def test_documented_log_lines_of_a_failover_are_logged() -> None:
    """Logged by the server that the row names, or by a package of it."""
    page = (ROOT / "docs" / "operations" / "look.md").read_text()
    text = page.split("| process | line | means |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    packages = {"controller": ["controller"], "broker": ["broker", "ha"]}
    documented = [(process, line) for process, lines, _ in rows for line in re.findall(r"`([^`]+)`", lines)]
    assert len(documented) > 10
    for process, line in documented:
        words = re.split(r" …| \w+=|, for ", line)[0]
        sources = [
            path.read_text() for package in packages[process] for path in (ROOT / package).rglob("*.py")
        ]
        assert any(f'"{words}' in source for source in sources), line
