"""Sync clients have every public name of the async ones, with the same parameters."""

import asyncio
import inspect
from typing import Any

import pytest

from ottla.client.admin import Admin as AsyncAdmin
from ottla.client.admin import NewTopic
from ottla.client.consumer.consumer import Consumer as AsyncConsumer
from ottla.client.producer.producer import Producer as AsyncProducer
from ottla.client.sync.administrator import Admin
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.testing import ClusterThread
from ottla.transport.channel import Disconnected

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (AsyncProducer, Producer),
    (AsyncConsumer, Consumer),
    (AsyncAdmin, Admin),
]


# A partition reader belongs to its event loop, and so does a callback for failed records.
ASYNC_ONLY = {"partition_reader", "on_failed"}


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - ASYNC_ONLY


@pytest.mark.parametrize(("behind", "front"), PAIRS, ids=lambda kind: kind.__module__)
def test_sync_clients_have_every_name_and_parameter(behind: type[Any], front: type[Any]) -> None:
    assert public(front) == public(behind)
    for name in ("__init__", *public(behind)):
        theirs, ours = getattr(behind, name), getattr(front, name)
        assert isinstance(theirs, property) == isinstance(ours, property)
        assert not inspect.iscoroutinefunction(inspect.unwrap(ours)) or ours is not theirs
        if not isinstance(theirs, property):
            assert [
                (one.name, one.kind, one.default)
                for one in inspect.signature(theirs).parameters.values()
            ] == [
                (one.name, one.kind, one.default)
                for one in inspect.signature(ours).parameters.values()
            ], name
        assert ours.__doc__


def test_sync_admin_reads_and_changes() -> None:
    with ClusterThread() as cluster:
        ours = Admin(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(Disconnected, match="use `with`"):
            ours.list_topics()
        with ours:
            assert not asyncio.iscoroutine(ours.create_topics([NewTopic("t", 3)]).or_raise())
            assert set(ours.list_topics()) == {"t"}
            assert len(ours.describe_topic("t").partitions) == 3
            with pytest.raises(RequestError) as caught:
                ours.describe_topic("other", timeout_s=5)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(Disconnected, match="use `with`"):
            ours.list_topics()
