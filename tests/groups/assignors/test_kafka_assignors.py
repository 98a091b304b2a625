"""The assignors of Kafka's Java client, asked the same: the same partitions, order and bytes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from groups.assignors.histories import NAMES, Round, histories
from judges.java import source_command
from kafka_java import judge_needed
from ottla.groups.assignors.assignor import ASSIGNORS
from ottla.groups.assignors.hash_order import HashOrder, partition_hash, text_hash
from ottla.groups.assignors.messages import (
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from ottla.groups.assignors.subscription import Subscription, TopicLayout
from ottla.ids import PartitionIndex, TopicPartition

JUDGE = Path(__file__).with_name("AssignorJudge.java")
HISTORIES = int(os.environ.get("H","96"))
SEED = int(os.environ.get("OTTLA_ASSIGNOR_SEED", "1"))


def judged(questions: list[str]) -> list[str]:
    with judge_needed():
        command = source_command(JUDGE)
    done = subprocess.run(
        command, input="\n".join(questions).encode(), capture_output=True, timeout=240
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def asked(name: str, each: Round) -> Iterator[str]:
    if each.new_leader:
        yield f"group\t{name}"
    for topic, layout in each.topics.items():
        racks = (",".join(sorted(layout.racks_of(index))) for index in range(layout.partitions))
        yield f"topic\t{topic}\t{';'.join(racks)}"
    for member_id, subscription in each.members.items():
        data = each.sent[member_id].hex()
        yield f"member\t{member_id}\t{subscription.group_instance_id or ''}\t{data}"
    yield f"assign\t{each.generation}"


def written(partitions: tuple[TopicPartition, ...]) -> str:
    return ",".join(f"{topic}:{index}" for topic, index in partitions)


def answer(name: str, each: Round) -> dict[str, str]:
    """What Java would write."""
    lines: dict[str, str] = {}
    for member_id, partitions in each.assignment.items():
        sent = assignment_bytes(partitions)
        member = ASSIGNORS[name]()
        member.on_assignment(read_assignment(sent), each.generation)
        next_data = (member.user_data() or b"").hex()
        lines[member_id] = f"{written(partitions)}\t{sent.hex()}\t{next_data}"
    return lines


def by_round(lines: list[str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{}]
    for line in lines:
        if line == ".":
            found.append({})
        else:
            member_id, _, rest = line.partition("\t")
            found[-1][member_id] = rest
    return found[:-1]


@pytest.fixture(scope="module")
def rounds() -> dict[str, list[Round]]:
    return {
        name: [each for history in histories(name, SEED, HISTORIES) for each in history]
        for name in ASSIGNORS
    }


@pytest.fixture(scope="module")
def verdicts(rounds: dict[str, list[Round]]) -> dict[str, list[dict[str, str]]]:
    """What Java makes of all rounds of all assignors, in one process."""
    lines = judged(
        [line for name, found in rounds.items() for each in found for line in asked(name, each)]
    )
    answers = iter(by_round(lines))
    return {name: [next(answers) for _ in found] for name, found in rounds.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_assignment_is_that_of_java(
    name: str, rounds: dict[str, list[Round]], verdicts: dict[str, list[dict[str, str]]]
) -> None:
    assert len(rounds[name]) >= 500
    for each, verdict in zip(rounds[name], verdicts[name], strict=True):
        assert answer(name, each) == verdict, "\n".join(asked(name, each))
