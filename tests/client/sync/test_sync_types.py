"""Types of the sync clients; `make check` verifies this file with pyright strict.

A line that must be rejected has an ignore comment; pyright reports an ignore comment that is not
needed.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, assert_type

import ottla
from ottla import OffsetAndMetadata, Record, TopicPartition, Written
from ottla.client.admin import CreatedTopic, FoundOffset, NewTopic, Partition, Results
from ottla.client.consumer.offsets import FoundOffset as FoundRecord
from ottla.client.serializers import LONG, STRING
from ottla.sync import Ack, Admin, Consumer, Producer, Transaction

SETTINGS = {"bootstrap.servers": "localhost:9092"}


def test_types_follow_from_the_serializers() -> None:
    assert_type(Producer(SETTINGS), Producer[bytes, bytes])
    assert_type(Producer(SETTINGS, key_serializer=STRING), Producer[str, bytes])
    assert_type(Consumer(SETTINGS), Consumer[bytes, bytes])
    both = Consumer(SETTINGS, key_deserializer=STRING, value_deserializer=LONG)
    assert_type(both, Consumer[str, int])


def sends(plain: Producer, typed: Producer[str, int]) -> None:
    """Never run; only the type checker reads it."""
    assert_type(plain.send("t", b"v", key=b"k"), Ack)
    assert_type(plain.send("t").result(5), Written)
    plain.send("t", "text")  # pyright: ignore[reportArgumentType]
    typed.send("t", 5, key="k")
    typed.send("t", 5, key=b"k")  # pyright: ignore[reportArgumentType]
    assert_type(typed.send_many("t", [1, None]), list[Ack])
    assert_type(typed.partitions("t"), list[int])
    typed.partitions(5)  # pyright: ignore[reportArgumentType]
    with typed as entered, entered.transaction() as transaction:
        assert_type(entered, Producer[str, int])
        assert_type(transaction, Transaction)
        transaction.send_offsets({("t", 0): 5}, "group")
        transaction.send_offsets({TopicPartition("t", 0): OffsetAndMetadata(5)}, "group")
        transaction.send_offsets({"t": 5}, "group")  # pyright: ignore[reportArgumentType]


def reads(typed: Consumer[str, int]) -> None:
    """Never run; only the type checker reads it."""
    for record in typed:
        assert_type(record, Record[str, int])
        assert_type(record.value, int | None)
    assert_type(typed.poll(), list[Record[str, int]])
    assert_type(typed.batches(), Iterator[list[Record[str, int]]])
    assert_type(typed.position(("t", 0)), int)
    assert_type(typed.assignment, frozenset[TopicPartition])
    typed.seek(("t", 0), 5)
    typed.seek(("t", 0), "5")  # pyright: ignore[reportArgumentType]
    typed.commit({("t", 0): 5}, timeout_s=5)
    typed.commit({TopicPartition("t", 0): 5, TopicPartition("t", 1): OffsetAndMetadata(5)})
    offsets = {record.topic_partition: record.offset + 1 for record in typed.poll()}
    typed.commit(offsets)
    typed.commit_soon(offsets)
    typed.commit({"t": 5})  # pyright: ignore[reportArgumentType]
    assert_type(typed.offsets_for_times(offsets), dict[TopicPartition, FoundRecord | None])
    typed.commit(soon=True)  # pyright: ignore[reportCallIssue]


def admin_calls(admin: Admin) -> None:
    """Never run; only the type checker reads it."""
    assert_type(admin.create_topics([NewTopic("t", 3)]), Results[str, CreatedTopic])
    assert_type(admin.list_offsets({("t", 0): 5}), Results[Partition, FoundOffset])
    admin.create_topics(["t"])  # pyright: ignore[reportArgumentType]
    admin.list_topics(nonsense=5)  # pyright: ignore[reportCallIssue]
    ottla.nonsense  # pyright: ignore # noqa: B018


def test_all_public_names_can_be_imported() -> None:
    names: Mapping[str, Any] = vars(ottla)
    for name in ottla.__all__:
        assert getattr(ottla, name) is names[name]
    assert {*ottla.__all__} <= {*dir(ottla)}
    assert {*names["_MODULES"]} == {*ottla.__all__} - {"__version__"}
    assert not hasattr(ottla, "nonsense")


def test_broker_starts_without_the_client() -> None:
    program = (
        "import sys, ottla.cli.entry, ottla.broker.service\n"
        "print([name for name in sys.modules if name.startswith(('ottla.client', 'ottla.sync'))])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip()) == (0, "[]")
