"""The fuzzer tries every decoder, and finds faults that no example shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from random import Random

import pytest

from messagestore.batch import MEMBER_HEADER, PROPERTIES_LENGTH, parse_batch
from simulation.fuzz.__main__ import PACKAGES, ROOT, TARGETS, campaign_of, main, run
from simulation.fuzz.campaign import Campaign, Target
from simulation.fuzz.lines import Lines

DECODER = re.compile(r"(decode|decoded|parse|parsed)(_\w+)?|from_json|unframed")
ELSEWHERE = {
    "sparkreplay/records/decode.py": "the columns of records, which tests compare with the reference by generated records",
}
INPUTS = 150


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_decoder_raises_only_its_own_errors_and_ends(target: Target) -> None:
    campaign = campaign_of(target, seed=1)
    run(campaign, inputs=INPUTS, seconds=0)
    assert not campaign.findings
    assert campaign.inputs == INPUTS


def test_every_decoder_is_reached_by_the_examples_of_a_target() -> None:
    entered = {
        (code.co_filename, code.co_firstlineno)
        for target in TARGETS
        for code in campaign_of(target, seed=1).lines.ran
    }
    left = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in ELSEWHERE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and DECODER.fullmatch(node.name)
        if (str(path), min([node.lineno, *(each.lineno for each in node.decorator_list)])) not in entered
    ]
    assert not left


def length_prefixed(data: bytes) -> None:
    """A careless reader: a negative length loops forever, and a large number raises a foreign error."""
    at = 0
    while at < len(data):
        at += 1 + int.from_bytes(data[at : at + 1], "big", signed=True)
    int(data[:1] or b"0") if data[:1].isdigit() else data.decode("ascii")


def test_an_endless_decoder_and_an_unexpected_error_are_findings() -> None:
    lines = Lines(Path(__file__).parents[2], ("tests",))
    hurried = Target("hurried", length_prefixed, [b"\x02ab\x01c"])
    campaign = Campaign(hurried, lines, Random(1))
    while campaign.inputs < 500:
        campaign.step()
    reasons = {finding.why.partition(":")[0] for finding in campaign.findings.values()}
    assert reasons == {"more work than any input may cost", "UnicodeDecodeError"}


def test_a_missing_check_in_a_decoder_is_found() -> None:
    """Reads batch messages without checking the size that each declares."""

    def careless(data: bytes) -> None:
        size, _, _, _, body_length = MEMBER_HEADER.unpack_from(data)
        (properties_length,) = PROPERTIES_LENGTH.unpack_from(data, MEMBER_HEADER.size + body_length)
        assert size == MEMBER_HEADER.size + body_length + PROPERTIES_LENGTH.size + properties_length

    good = MEMBER_HEADER.pack(26, 0, 0, 0, 3) + b"abc" + PROPERTIES_LENGTH.pack(1) + b"p"
    careless(good)
    assert len(parse_batch(good)) == 1
    campaign = Campaign(Target("careless", careless, [good]), Lines(ROOT, PACKAGES), Random(1))
    while campaign.inputs < 200:
        campaign.step()
    assert {finding.why.partition(":")[0] for finding in campaign.findings.values()} == {
        "error",
        "AssertionError",
    }


def test_the_same_seed_tries_the_same_inputs() -> None:
    tried: list[list[bytes]] = []
    for _ in range(2):
        seen: list[bytes] = []
        campaign = campaign_of(TARGETS[0], 7, seen.append)
        run(campaign, inputs=60, seconds=0)
        tried.append(seen)
    assert tried[0] == tried[1]


def test_the_fuzzer_runs_one_input_and_names_an_unknown_target(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--only", "version of tables", "--input", b"3.1".hex()])
    assert main() == 0
    monkeypatch.setattr("sys.argv", ["fuzz", "--only", "no such"])
    with pytest.raises(SystemExit):
        main()
    assert "no target no such" in capsys.readouterr().err
