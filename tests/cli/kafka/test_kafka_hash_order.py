"""Iteration order of a java.util.HashMap, compared with Java's (recorded as fingerprints)."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from judges.java import source_command
from judges.recording import Scenario
from kafka_java import judge_needed
from ottla.cli.kafka.hash_order import in_hash_order
from recorded import assert_answers, recording, scenario

__all__ = ["recording", "scenario"]  # fixtures

pytestmark = pytest.mark.recorded

JUDGE = Path(__file__).with_name("HashOrderJudge.java")


def names_of(count: int) -> list[str]:
    return [f"topic-{index * 7919 % 1000}.ü{index}" for index in range(count)]


def in_one_bin(count: int) -> list[str]:
    """Return names that share a bin in a map of 16 bins, but not in a larger one."""
    return [chr(0x1000 + 16 * index) for index in range(count)]


CASES = [
    *map(names_of, (1, 2, 3, 4, 6, 7, 12, 13, 14, 25, 50, 200)),
    *map(in_one_bin, (7, 8, 9, 12)),
]


def ask(questions: Sequence[str]) -> list[str]:
    """Return Java's answers."""
    with judge_needed():
        command = source_command(JUDGE)
    asked = "".join(f"{line}\n" for line in questions).encode()
    done = subprocess.run(command, input=asked, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def our_answer(names: list[str]) -> str:
    """Return the order of a growing map, of one with room, and of one for computeIfAbsent."""
    orders = (
        in_hash_order(names),
        in_hash_order(names, len(names)),
        in_hash_order(names, is_computed=True),
    )
    return "\t".join(" ".join(order) for order in orders)


def test_names_are_in_the_order_of_java(scenario: Scenario) -> None:
    questions = [" ".join(names) for names in CASES]
    assert_answers(scenario, questions, [our_answer(names) for names in CASES], ask)
