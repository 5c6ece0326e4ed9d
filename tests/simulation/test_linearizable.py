"""The linearizability checker of registers, on short histories."""

from __future__ import annotations

import random

import pytest

from simulation.raft.linearizable import NEVER, Operation, OperationHistory, OperationKind, first_unexplained


def op(line: str) -> Operation:
    """ "1-4 write a", "2-? swap a b", "3-5 read -": times, kind, values; - is an empty register, ! a swap that was refused."""
    times, kind, *values = line.split()
    called, _, returned = times.partition("-")
    swapped = None
    if values[-1] == "!":
        values.pop()
        swapped = False
    elif kind == "swap" and returned != "?":
        swapped = True
    known = [None if value == "-" else value for value in values]
    expected = known.pop(0) if kind == "swap" else None
    end = NEVER if returned == "?" else float(returned)
    return Operation(OperationKind(kind), "k", 0, float(called), known[0], expected, swapped, end)


LINEARIZABLE = {
    "nothing": [],
    "one after the other": ["1-2 read -", "3-4 write a", "5-6 read a"],
    "a read during a write sees either": ["1-9 write a", "2-3 read -", "4-5 read a"],
    "unknown and never done": ["1-? write a", "5-6 read -"],
    "unknown and done late": ["1-? write a", "5-6 read -", "7-8 read a", "9-10 read a"],
    "swaps": ["1-2 write a", "3-4 swap a b", "5-6 swap a c !", "7-8 read b"],
    "an unknown swap that found nothing": ["1-? swap a b", "2-3 write c", "4-5 read c"],
    "the later call first": ["1-9 write a", "2-8 write b", "10-11 read a"],
}
NOT_LINEARIZABLE = {
    "a stale read": ["1-2 write a", "3-4 write b", "5-6 read a"],
    "a lost write": ["1-2 write a", "3-4 read -"],
    "never written": ["1-2 read a"],
    "back and forth": ["1-9 write a", "2-3 read a", "4-5 read -"],
    "a refused swap that would have done": ["1-2 write a", "3-4 swap a b !"],
    "two swaps of one value": ["1-2 write a", "3-9 swap a b", "3-9 swap a c"],
    "undone": ["1-? write a", "2-3 write b", "4-5 read a", "6-7 read b"],
}


@pytest.mark.parametrize("lines", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_a_linearizable_history_passes(lines: list[str]) -> None:
    assert first_unexplained([op(line) for line in lines]) is None


@pytest.mark.parametrize("lines", NOT_LINEARIZABLE.values(), ids=NOT_LINEARIZABLE)
def test_a_history_that_is_not_linearizable_is_found(lines: list[str]) -> None:
    assert first_unexplained([op(line) for line in lines])


def has_an_order(left: list[Operation], state: str | None) -> bool:
    """Tries all orders."""
    answered = [each for each in left if each.returned != NEVER]
    ended = min((each.returned for each in answered), default=NEVER)
    return not answered or any(
        has_an_order([other for other in left if other is not each], each.after(state)[1])
        for each in left
        if each.called <= ended and each.after(state)[0]
    )


@pytest.mark.parametrize("seed", range(400))
def test_the_checker_agrees_with_trying_all_orders(seed: int) -> None:
    chance, lines = random.Random(seed), []
    for called in range(chance.randint(3, 8)):
        end = "?" if chance.random() < 0.5 else f"{called + chance.randint(1, 4)}.5"
        values = [chance.choice("-abcdef"[: chance.choice((3, 7))]) for _ in range(2)]
        kind = (
            chance.choice(("read", "write", "swap", "swap"))
            if end != "?"
            else chance.choice(("write", "swap"))
        )
        said = " ".join(values) if kind == "swap" else values[0]
        refused = " !" if kind == "swap" and end != "?" and chance.random() < 0.5 else ""
        lines.append(f"{called}-{end} {kind} {said}{refused}")
    operations = [op(line) for line in lines]
    assert (first_unexplained(operations) is None) == has_an_order(operations, None), lines


def test_many_operations_of_unknown_outcome_are_checked_quickly() -> None:
    """Each may have happened at any time, or never: trying all subsets would take forever."""
    lost = [f"{at}-? write {at % 4}" for at in range(40)] + [
        f"{at}-? swap {at % 4} x{at}" for at in range(40)
    ]
    seen = [
        "50-51 write a",
        "52-53 read 3",
        "54-55 read x2",
        "56-57 swap 1 b !",
        "58-59 read 0",
        "60-61 swap x0 c",
    ]
    assert first_unexplained([op(line) for line in lost + seen]) is None
    found = first_unexplained([op(line) for line in [*lost, *seen, "62-63 read c", "64-65 read x2"]])
    assert found is not None and found[-1].called == 64


def drawn(seed: int) -> OperationHistory:
    """Overlapping operations of clients on a correct register; some never get an answer."""
    chance, history, state, now = random.Random(seed), OperationHistory(), None, 0.0
    for number in range(60):
        now += chance.random()
        kind = chance.choice([*OperationKind])
        operation = Operation(kind, "k", 0, now - 2 * chance.random(), str(number))
        if kind is OperationKind.READ:
            operation.value = state
        elif kind is OperationKind.SWAP:
            operation.expected = state if chance.random() < 0.5 else "none"
            operation.swapped = operation.expected == state
        if chance.random() < 0.1 and kind is not OperationKind.READ:
            operation.swapped = None
        else:
            operation.returned = now + 2 * chance.random()
        state = operation.after(state)[1]
        history.called(operation)
    return history


@pytest.mark.parametrize("seed", range(20))
def test_a_correct_register_passes_and_one_changed_answer_is_found(seed: int) -> None:
    history = drawn(seed)
    assert history.unexplained() is None
    read = next(each for each in history.operations() if each.kind is OperationKind.READ)
    read.value = "never written"
    found = history.unexplained()
    assert found is not None and read in found
