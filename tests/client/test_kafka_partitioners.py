"""Our partitioners compared with Java's, which get the same random numbers.

The same seed generates the same questions. Java's answers are recorded as fingerprints.
"""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from judges.java import source_command
from judges.recording import Scenario
from kafka_java import judge_needed
from ottla.client.partitioners import (
    KeyPartitioner,
    Partitions,
    RoundRobinPartitioner,
    partition_of_key,
    weights,
)
from recorded import assert_answers, recording, scenario

__all__ = ["recording", "scenario"]  # fixtures

pytestmark = pytest.mark.recorded

SOURCE = Path(__file__).with_name("PartitionerJudge.java")


def ask(questions: Sequence[str]) -> list[str]:
    """Return Java's answers."""
    with judge_needed():
        command = source_command(SOURCE)
    asked = "".join(question + "\n" for question in questions)
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=240, check=False
    )
    given = done.stdout.splitlines()
    assert len(given) == len(questions), done.stderr
    return given


def listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


def test_key_goes_to_the_partition_that_java_chooses(scenario: Scenario) -> None:
    random = Random(7)
    keys = [
        b"",
        b"\x00",
        b"\xff" * 9,
        *(random.randbytes(random.randrange(40)) for _ in range(2000)),
    ]
    cases = [(key, random.choice((1, 2, 3, 7, 12, 1000, 2**31 - 1))) for key in keys]
    questions = [f"key {key.hex() or '-'} {count}" for key, count in cases]
    ours = [str(partition_of_key(key, count)) for key, count in cases]
    assert_answers(scenario, questions, ours, ask)
    partitioner = KeyPartitioner(16384, random.random)
    assert ours == [
        str(partitioner.choose("t", key, None, Partitions(count, ()))) for key, count in cases
    ]


def test_random_choices_are_those_of_java(scenario: Scenario) -> None:
    """With and without leaders, queues and differences: every random number of the range."""
    random = Random(8)
    cases: list[tuple[int, dict[int, int], tuple[int, ...], int]] = []
    for _ in range(400):
        count = random.randrange(1, 7)
        available = tuple(sorted(random.sample(range(count), random.randrange(count + 1))))
        swift = [partition for partition in available if random.random() < 0.8]
        deepest = random.choice((0, 1, 4))
        batches = {partition: random.randint(0, deepest) for partition in swift}
        found = weights(batches, count)
        end = found.sums[-1] if found is not None else len(available) or count
        cases.append((count, batches, available, end))
    questions: list[str] = []
    for count, batches, available, end in cases:
        # Java passes an array of full length, and how many entries count.
        absent = [0] * (count - len(batches))
        sizes, ids = [*batches.values(), *absent], [*batches, *absent]
        questions.append(
            f"draw {count} {listed(available)} {listed(sizes)} {listed(ids)} {len(batches)} "
            + listed(range(end))
        )
    assert_answers(scenario, questions, [drawn(*case) for case in cases], ask)
    assert sum(weights(batches, count) is not None for count, batches, _, _ in cases) > 100


def drawn(count: int, batches: dict[int, int], available: tuple[int, ...], end: int) -> str:
    chosen: list[int] = []
    for draw in range(end):
        chances = iter((0.0, (draw + 0.5) / end))
        partitioner = KeyPartitioner(1, lambda chances=chances: next(chances))
        partitions = Partitions(count, available)
        first = partitioner.choose("t", None, None, partitions)
        partitioner.waiting("t", batches, count)
        partitioner.batch_closed("t", first, 1)
        chosen.append(partitioner.choose("t", None, None, partitions))
    return listed(chosen)


def test_records_without_a_key_switch_when_javas_do(scenario: Scenario) -> None:
    random = Random(9)
    cases: list[tuple[int, int, list[int], list[int]]] = []
    for _ in range(300):
        count, batch_size = random.randrange(1, 6), random.choice((1, 10, 100))
        draws = [random.randrange(count) for _ in range(200)]
        longest = random.choice((3, 12, 40, 250))
        sizes = [
            0 if random.random() < 0.1 else random.randint(1, longest) for _ in range(150)
        ]  # 0: the open batch is sent
        cases.append((count, batch_size, draws, sizes))
    questions = [
        f"stick {count} {batch_size} {listed(draws)} {listed(sizes)}"
        for count, batch_size, draws, sizes in cases
    ]
    ours = [listed(stuck(*case)) for case in cases]
    assert_answers(scenario, questions, ours, ask)
    assert sum(len(set(answer.split(","))) > 1 for answer in ours) > 100


def stuck(count: int, batch_size: int, draws: list[int], sizes: list[int]) -> list[int]:
    """Return the partitions of records from a producer that reports its closed batches."""
    drawing = iter(draws * 10)
    partitioner = KeyPartitioner(batch_size, lambda: (next(drawing) + 0.5) / count)
    partitions = Partitions(count, tuple(range(count)))
    open_bytes = [0] * count
    chosen: list[int] = []

    def close(partition: int) -> None:
        size, open_bytes[partition] = open_bytes[partition], 0
        partitioner.batch_closed("t", partition, size)

    for size in sizes:
        if size == 0:
            for partition in range(count):
                if open_bytes[partition]:
                    close(partition)
            continue
        at = partitioner.choose("t", None, b"", partitions)
        while open_bytes[at] and open_bytes[at] + size > batch_size:
            close(at)
            at = partitioner.choose("t", None, b"", partitions)
        chosen.append(at)
        open_bytes[at] += size
        if open_bytes[at] >= batch_size:
            close(at)
    return chosen


def test_round_robin_is_that_of_java(scenario: Scenario) -> None:
    cases = [(1, (0,)), (3, (0, 1, 2)), (4, (1, 3)), (5, ()), (6, (5,))]
    ours: list[str] = []
    for count, available in cases:
        partitioner = RoundRobinPartitioner()
        partitions = Partitions(count, available)
        chosen = [partitioner.choose("t", b"k", b"v", partitions) for _ in range(20)]
        ours.append(listed(chosen))
    questions = [f"turn {count} {listed(available)} 20" for count, available in cases]
    assert_answers(scenario, questions, ours, ask)
