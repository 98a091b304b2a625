"""Random walks recorded from Kafka 4.3.1: each line is a step and, after `>`, its outcome.

The steps were drawn so that duplicates, gaps, zombies, wraps and conflicts are frequent.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from log.producer_batches import Leader, header
from ottla.errors import RequestError
from ottla.ids import LeaderEpoch, Offset
from ottla.log.epochs import EpochHistory
from ottla.log.producer_snapshot import read_snapshot, write_snapshot
from ottla.log.producer_state_manager import ProducerStateManager

HERE = Path(__file__).parent


def steps(path: Path) -> Iterable[tuple[int, list[str], list[str]]]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        step, _, outcome = line.partition(">")
        yield number, step.split(), outcome.split()


def take(leader: Leader, step: list[str]) -> list[object]:
    """The outcome of one step, in the format of the file."""
    producers = leader.producers
    match step:
        case ["data", origin, *numbers]:
            producer_id, epoch, sequence, count, transactional, now = map(int, numbers)
            batch = header(
                producer_id,
                epoch,
                sequence,
                count,
                transactional=bool(transactional),
                timestamp=now,
            )
            if origin == "COORDINATOR":
                producers.check_from_coordinator(batch)
            duplicate = leader.produce(batch, from_client=origin == "CLIENT")
            return ["accepted"] if duplicate is None else ["duplicate", *duplicate]
        case ["marker", origin, *numbers]:
            producer_id, epoch, coordinator_epoch, commit, version, now = map(int, numbers)
            completed = leader.end_transaction(
                producer_id,
                epoch,
                commit=bool(commit),
                coordinator_epoch=coordinator_epoch,
                transaction_version=None if origin == "REPLICATION" else version,
                timestamp=now,
            )
            if completed is None:
                return ["nothing"]
            assert completed.producer_id == producer_id
            return ["completed", *completed[1:3], int(completed.aborted), *completed[4:]]
        case ["watermark", offset]:
            return [producers.last_stable_offset(Offset(int(offset)))]
        case ["expire", now, expiration]:
            producers.expire(int(now), int(expiration))
            return [*sorted(producer.producer_id for producer in producers)]
        case ["snapshot"]:
            ordered = ProducerStateManager(
                sorted(producers, key=lambda producer: producer.producer_id)
            )
            data = write_snapshot(ordered)
            read = read_snapshot(data)
            assert write_snapshot(read) == data
            for producer in read:  # Kafka's snapshot has only the last batch
                del producer.batches[:-1]
            return [write_snapshot(read).hex()]
        case _:
            raise AssertionError(step)


def walk_producers(path: Path) -> set[str]:
    leader = Leader()
    seen: set[str] = set()
    for number, step, expected in steps(path):
        if step == ["new"]:
            leader = Leader()
            continue
        try:
            outcome = take(leader, step)
        except RequestError as error:
            outcome = [error.code.name]
        assert list(map(str, outcome)) == expected, f"{path.name}:{number}"
        seen.update(expected[:1])
    return seen


def walk_epochs(path: Path) -> None:
    history = EpochHistory()
    for number, step, expected in steps(path):
        where = f"{path.name}:{number}"
        match step[0], [int(word) for word in step[1:]]:
            case "new", []:
                history = EpochHistory()
            case "ask", [epoch, end]:
                answer = history.end_offset(epoch, Offset(end)) or (-1, -1)
                assert list(map(str, answer)) == expected, where
            case "of", [offset]:
                epoch = history.epoch_of(offset)
                assert [str(-1 if epoch is None else epoch)] == expected, where
            case verb, numbers:
                before = list(history)
                if verb == "assign":
                    changed = history.assign(LeaderEpoch(numbers[0]), Offset(numbers[1]))
                elif verb == "end":
                    changed = history.truncate_from_end(numbers[0])
                else:
                    changed = history.truncate_from_start(Offset(numbers[0]))
                assert [f"{entry[0]}:{entry[1]}" for entry in history] == expected, where
                assert changed == (list(history) != before), where


def test_producer_state_equals_kafka() -> None:
    seen = walk_producers(HERE / "kafka-producers.txt")
    assert seen >= {
        "accepted",
        "duplicate",
        "completed",
        "nothing",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "TRANSACTION_COORDINATOR_FENCED",
    }


def test_a2_epoch_history_equals_kafka() -> None:
    walk_epochs(HERE / "kafka-epochs.txt")


def test_changed_walk_fails(tmp_path: Path) -> None:
    """A check of the test itself: a changed outcome must fail."""
    text = (HERE / "kafka-producers.txt").read_text().replace("duplicate 0", "duplicate 1", 1)
    (tmp_path / "walk.txt").write_text(text)
    with pytest.raises(AssertionError, match=r"walk\.txt:"):
        walk_producers(tmp_path / "walk.txt")
