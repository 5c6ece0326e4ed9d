"""The fuzzer tries every decoder there is, and finds what no example shows."""

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
def test_a_decoder_raises_nothing_but_what_it_says_and_comes_to_an_end(target: Target) -> None:
    campaign = campaign_of(target, seed=1)
    run(campaign, inputs=INPUTS, seconds=0)
    assert not campaign.findings
    assert campaign.inputs == INPUTS


def test_every_decoder_is_entered_by_the_examples_of_some_target() -> None:
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
    """A reader as it is written in a hurry: a negative length leads back for ever, a large number is not its error."""
    at = 0
    while at < len(data):
        at += 1 + int.from_bytes(data[at : at + 1], "big", signed=True)
    int(data[:1] or b"0") if data[:1].isdigit() else data.decode("ascii")


def test_what_does_not_end_and_what_nobody_allowed_are_findings() -> None:
    lines = Lines(Path(__file__).parents[2], ("tests",))
    hurried = Target("hurried", length_prefixed, [b"\x02ab\x01c"])
    campaign = Campaign(hurried, lines, Random(1))
    while campaign.inputs < 500:
        campaign.step()
    reasons = {finding.why.partition(":")[0] for finding in campaign.findings.values()}
    assert reasons == {"more work than any input may cost", "UnicodeDecodeError"}


def test_a_check_that_was_left_out_of_a_decoder_is_found() -> None:
    """The members of a batch without the comparison with the size that each says."""

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


def test_the_same_seed_tries_the_same() -> None:
    tried: list[list[bytes]] = []
    for _ in range(2):
        seen: list[bytes] = []
        campaign = campaign_of(TARGETS[0], 7, seen.append)
        run(campaign, inputs=60, seconds=0)
        tried.append(seen)
    assert tried[0] == tried[1]


def test_one_input_is_run_alone_and_an_unknown_target_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--only", "version of tables", "--input", b"3.1".hex()])
    assert main() == 0
    monkeypatch.setattr("sys.argv", ["fuzz", "--only", "no such"])
    with pytest.raises(SystemExit):
        main()
    assert "no target no such" in capsys.readouterr().err
