"""Common mistakes of new users: each error says what is wrong and what to do.

No call hangs, and no error exposes internals.
"""

import asyncio
import logging
import os
import random
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

import ottla.sync
from cases import each_case
from client.scenario_runner import run
from ottla import Admin, Consumer, Producer, RequestError
from ottla.client.serializers import LONG, STRING
from ottla.settings.invalid_settings import InvalidSettings
from ottla.testing import Cluster, ClusterThread
from ottla.transport.failures import NotRunning

SOON = {"max.block.ms": 1500}
SOON_TOO = {"default.api.timeout.ms": 1500}


@pytest.fixture
def unused_address() -> Generator[str]:
    """Yield an address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent_address() -> Generator[str]:
    """Yield an address at which a socket listens and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def write(servers: str, value: Any = b"v", **arguments: Any) -> None:
    async with Producer({"bootstrap.servers": servers, **SOON}, **arguments) as producer:
        await (await producer.send("t", value))


async def find(servers: str, **arguments: Any) -> None:
    async with Consumer({"bootstrap.servers": servers, **SOON_TOO}, **arguments) as consumer:
        await consumer.partitions("t")


async def administer(servers: str, **arguments: Any) -> None:
    async with Admin({"bootstrap.servers": servers, **SOON_TOO}, **arguments) as admin:
        await admin.list_topics()


Use = Callable[..., Awaitable[None]]
USES: list[Use] = [write, find, administer]


@pytest.mark.parametrize("use", USES)
def test_no_broker_is_reported(use: Use, unused_address: str) -> None:
    async def scenario() -> None:
        with pytest.raises(RequestError, match=f"connection refused by {unused_address}") as raised:
            await use(unused_address)
        port = unused_address.rpartition(":")[2]
        assert f"`ottla dev --port {port}` starts one on 127.0.0.1:{port}" in raised.value.hint

    run(scenario())


@pytest.mark.parametrize("use", USES)
def test_client_does_not_use_the_global_random_state(use: Use, unused_address: str) -> None:
    """A program that seeds Python's random generator draws the same numbers beside a client."""

    async def scenario() -> None:
        before = random.getstate()
        with pytest.raises(RequestError):
            await use(unused_address)
        assert random.getstate() == before

    run(scenario())


@pytest.mark.parametrize("use", [write, find])
def test_silent_port_is_reported(use: Use, silent_address: str) -> None:
    async def scenario() -> None:
        with pytest.raises(RequestError, match=f"{silent_address} did not respond") as raised:
            await use(silent_address)
        assert "security.protocol" in raised.value.hint

    run(scenario())


def test_unknown_host_is_reported() -> None:
    async def scenario() -> None:
        with pytest.raises(RequestError, match="no-such-host") as raised:
            await write("no-such-host.invalid:9092")
        assert "bootstrap.servers" in raised.value.hint

    run(scenario())


def test_consumer_waiting_for_a_broker_logs_it(
    unused_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        consumer = Consumer(bootstrap_servers=unused_address, group_id="g")
        async with consumer:
            consumer.subscribe("t")
            while not caplog.records:
                assert await consumer.poll(0.05) == []

    with caplog.at_level(logging.WARNING):
        run(scenario())
    [result] = caplog.messages
    assert "connection refused" in result
    port = unused_address.rpartition(":")[2]
    assert f"`ottla dev --port {port}`" in result


async def at_a_broker(use: Callable[[str], Awaitable[None]], creates: str = "false") -> None:
    async with Cluster(settings={"auto.create.topics.enable": creates}) as cluster:
        await use(cluster.bootstrap_servers)


def test_missing_topic_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(servers: str) -> None:
        for use in (write, find):
            with pytest.raises(RequestError, match="the topic does not exist") as raised:
                await use(servers)
            assert "Admin.create_topic" in raised.value.hint
        caplog.clear()
        async with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
            consumer.subscribe("missing")
            while not caplog.records:
                await consumer.poll(0.05)
        assert "topic missing does not exist" in caplog.messages[0]

    with caplog.at_level(logging.WARNING):
        run(at_a_broker(scenario))


def test_tls_and_sasl_at_a_plaintext_port_are_reported() -> None:
    async def scenario(servers: str) -> None:
        for use in USES:
            with pytest.raises(RequestError, match=r"set security\.protocol to PLAINTEXT"):
                await use(servers, security_protocol="SSL")
        login = {"sasl_mechanism": "PLAIN", "sasl_username": "ann", "sasl_password": "secret"}
        with pytest.raises(RequestError, match="does not use SASL") as raised:
            await write(servers, security_protocol="SASL_PLAINTEXT", **login)
        assert not raised.value.retriable
        assert "secret" not in str(raised.value)

    run(at_a_broker(scenario))


def test_missing_group_id_is_reported() -> None:
    async def scenario() -> None:
        async with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
            with pytest.raises(RequestError, match=r"the setting group\.id"):
                consumer.subscribe("t")
            with pytest.raises(RequestError, match=r"the setting group\.id"):
                await consumer.commit()
            for read in (consumer.poll, consumer.poll_arrow, lambda: anext(aiter(consumer))):
                with pytest.raises(RequestError, match=r"call subscribe\(\) or assign\(\) first"):
                    await read()

    run(scenario())


@each_case("value", ["text", 5, {"a": 1}, 1.5], ids=repr)
def test_value_that_is_not_bytes_is_refused(value: Any) -> None:
    async def scenario(servers: str) -> None:
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.create_topic("t", partitions=1)
        async with Producer(bootstrap_servers=servers) as producer:
            send: Any = producer.send
            many: Any = producer.send_many
            result = f"bytes, not {type(value).__name__}: encode it, or give the producer a ser"
            for _ in range(2):  # the first record of a batch, and the next
                with pytest.raises(TypeError, match=result):
                    await send("t", value)
                with pytest.raises(TypeError, match=result):
                    await send("t", b"v", key=value)
                with pytest.raises(TypeError, match=result):
                    await many("t", [value])
                with pytest.raises(TypeError, match=result):
                    await send("t", b"v", headers=[("name", value)])
                with pytest.raises(TypeError, match="headers must be pairs"):
                    await send("t", b"v", headers={"name": b"v"})
                await producer.flush()
                await (await producer.send("t", b"v", key=b"k"))
        for serializer in (STRING, LONG):
            with pytest.raises(RequestError, match="cannot be serialized") as refused:
                await write(servers, b"bytes", value_serializer=serializer)
            assert "Correct the value" in refused.value.hint

    run(at_a_broker(scenario))


@each_case(
    ("arguments", "expected"),
    [
        ({"timestamp_ms": 1.5}, r"timestamp_ms must be an integer, not 1\.5 \(float\)"),
        ({"timestamp_ms": "1"}, r"timestamp_ms must be an integer, not '1' \(str\)"),
        ({"headers": 5}, "headers must be pairs of a name and bytes or None, not int"),
        ({"headers": ["ab"]}, "headers must be pairs of a name and bytes or None"),
        ({"headers": [(b"name", b"v")]}, "name of a record header must be a str, not bytes"),
    ],
)
def test_wrong_type_in_a_record_is_refused(arguments: dict[str, Any], expected: str) -> None:
    async def scenario(servers: str) -> None:
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.create_topic("t", partitions=1)
        async with Producer({"linger.ms": 50}, bootstrap_servers=servers) as producer:
            send: Any = producer.send
            for _ in range(2):  # the first record of a batch, and the next
                with pytest.raises(TypeError, match=expected):
                    await send("t", b"v", **arguments)
                await producer.send("t", b"v")
            await producer.flush()
            assert (await (await producer.send("t", b"v"))).offset == 2

    run(at_a_broker(scenario))
    with ottla.sync.Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=1) as sync_producer:
        sync_send: Any = sync_producer.send
        with pytest.raises(TypeError, match=expected):
            sync_send("t", b"v", **arguments)


def test_too_large_value_is_refused() -> None:
    async def scenario(servers: str) -> None:
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.create_topic("t", partitions=1, config={"max.message.bytes": "2000"})
        with pytest.raises(RequestError, match=r"raise max\.request\.size of the pro.* max"):
            await write(servers, bytes(2 << 20))
        with pytest.raises(
            RequestError, match=r"max\.message\.bytes of the topic is 2000"
        ) as raised:
            await write(servers, bytes(5000))
        assert "max.message.bytes" in raised.value.hint

    run(at_a_broker(scenario))


def test_invalid_settings_are_refused() -> None:
    make: Any
    for make in (Producer, Consumer, Admin, ottla.sync.Producer, ottla.sync.Consumer):
        with pytest.raises(InvalidSettings, match=r"did you mean bootstrap\.servers"):
            make(bootstrap_server="127.0.0.1:9092")
        with pytest.raises(
            InvalidSettings, match=r"bootstrap\.servers: required setting is missing"
        ):
            make()
        with pytest.raises(InvalidSettings, match="expected host:port"):
            make(bootstrap_servers="127.0.0.1:none")
        with pytest.raises(TypeError, match="settings must be a mapping"):
            make("127.0.0.1:9092")


def test_list_arguments_are_refused_with_the_right_form() -> None:
    async def scenario() -> None:
        async with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
            subscribe: Any = consumer.subscribe
            assign: Any = consumer.assign
            with pytest.raises(TypeError, match=r"subscribe\(\*topics\)"):
                subscribe(["t"])
            with pytest.raises(TypeError, match="a partition must be a pair of topic and number"):
                assign([("t", 0)])

    run(scenario())


def test_client_that_is_not_started_raises() -> None:
    async def scenario() -> None:
        producer = Producer(bootstrap_servers="127.0.0.1:1")
        consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
        admin = Admin(bootstrap_servers="127.0.0.1:1")
        uses: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send("t", b"v"),
            producer.flush,
            consumer.poll,
            consumer.commit,
            admin.list_topics,
        ]
        for _ in range(2):  # before it runs, and after it has ended
            for use in uses:
                with pytest.raises(NotRunning, match="use `async with`") as raised:
                    await use()
                assert not raised.value.retriable
            async with producer, consumer, admin:
                pass

    run(scenario())


def test_client_started_twice_raises() -> None:
    async def scenario(servers: str) -> None:
        producer = Producer(bootstrap_servers=servers)
        consumer = Consumer(
            {"auto.offset.reset": "earliest"}, "t", bootstrap_servers=servers, group_id="g"
        )
        admin = Admin(bootstrap_servers=servers)
        for number in range(2):  # a closed client can be started again
            async with producer, consumer, admin:
                for client, whose in (
                    (producer, "producer"),
                    (consumer, "consumer"),
                    (admin, "administrator"),
                ):
                    with pytest.raises(RuntimeError, match=f"the {whose} is already running"):
                        async with client:
                            pass
                await (await producer.send("t", b"%d" % number))
                records: list[Any] = []
                while not records:
                    records = await consumer.poll()
                assert [one.value for one in records] == [b"%d" % number]
                assert [*await admin.list_topics()] == ["t"]

    run(at_a_broker(scenario, "true"))


def test_sync_client_started_twice_raises() -> None:
    with ClusterThread() as cluster:
        servers = cluster.bootstrap_servers
        producer = ottla.sync.Producer(bootstrap_servers=servers)
        consumer = ottla.sync.Consumer(bootstrap_servers=servers)
        admin = ottla.sync.Admin(bootstrap_servers=servers)
        for _ in range(2):
            with producer, consumer, admin:
                clients: list[Any] = [producer, consumer, admin]
                for client in clients:
                    with pytest.raises(RuntimeError, match="is already running"), client:
                        pass
                producer.send("t", b"v").result(30)
                assert len(consumer.partitions("t")) == len(producer.partitions("t"))
                assert [*admin.list_topics()] == ["t"]


def test_client_of_another_event_loop_raises() -> None:
    async def scenario(servers: str) -> None:
        async with (
            Producer(bootstrap_servers=servers) as producer,
            Consumer(bootstrap_servers=servers, group_id="g") as consumer,
            Admin(bootstrap_servers=servers) as admin,
        ):
            uses: list[Callable[[], Any]] = [
                lambda: producer.send("t", b"v"),
                producer.flush,
                consumer.poll,
                consumer.commit,
                admin.list_topics,
            ]

            async def used(use: Callable[[], Any]) -> None:
                await use()

            for use in uses:
                with pytest.raises(
                    NotRunning, match="event loop in which it was started"
                ) as raised:
                    await asyncio.to_thread(asyncio.run, used(use))
                assert "ottla.sync" in raised.value.hint

    run(at_a_broker(scenario))


def test_sync_client_works_inside_a_running_loop() -> None:
    """It blocks the event loop and does not depend on it: a notebook always has a running loop."""

    async def scenario(servers: str) -> None:
        with ottla.sync.Producer(bootstrap_servers=servers) as producer:
            assert producer.send("t", b"v").result(30).offset == 0

    with ClusterThread() as cluster:
        run(scenario(cluster.bootstrap_servers))


def test_sync_client_after_a_fork_raises() -> None:
    with ClusterThread() as cluster:
        producer = ottla.sync.Producer(bootstrap_servers=cluster.bootstrap_servers)
        with producer:
            child = os.fork()
            if not child:
                try:
                    producer.send("t", b"v")
                    os._exit(1)
                except NotRunning as told:
                    os._exit(0 if "after the fork" in str(told) else 2)
                except BaseException:
                    os._exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert producer.send("t", b"v").result(30).offset == 0


AFTER_A_FORK = """
import gc, logging, os, sys, warnings
import ottla.sync
from ottla.transport.failures import NotRunning

warnings.simplefilter("always")
# On a busy machine asyncio's debug mode also tells how long a callback took.
logging.getLogger("asyncio").addFilter(lambda one: not one.msg.startswith("Executing %s took"))
servers = {"bootstrap.servers": sys.argv[1]}
producer = ottla.sync.Producer({**servers, "linger.ms": 60_000})
consumer = ottla.sync.Consumer({**servers, "group.id": "g"})
admin = ottla.sync.Admin(servers)
with producer, consumer, admin:
    producer.send("t", b"v")
    producer.flush(60)
    later = producer.send("t", b"v")  # nobody knows of it before the next flush
    consumer.assign(*consumer.partitions("t"))
    records, batches, columns = iter(consumer), consumer.batches(), consumer.arrow()
    committing = consumer.committing()
    calls = [
        lambda: producer.send("t", b"v"),
        lambda: producer.send_many("t", [b"v"]),
        lambda: producer.flush(),
        lambda: producer.flush(5),
        lambda: producer.partitions("t"),
        lambda: producer.metrics(),
        lambda: producer.transaction(),
        lambda: later.result(5),
        lambda: producer.__enter__(),
        lambda: consumer.poll(),
        lambda: next(records),
        lambda: next(batches),
        lambda: consumer.poll_arrow(),
        lambda: next(columns),
        lambda: consumer.subscribe("t"),
        lambda: consumer.unsubscribe(),
        lambda: consumer.assignment,
        lambda: consumer.position(("t", 0)),
        lambda: consumer.end_offsets(("t", 0)),
        lambda: consumer.commit(),
        lambda: consumer.commit_soon(),
        lambda: committing.__enter__(),
        lambda: consumer.seek(("t", 0), 0),
        lambda: admin.list_topics(),
        lambda: admin.describe_topic("t", timeout_s=5),
    ]
    child = os.fork()
    if not child:
        told = 0
        for number, call in enumerate(calls):
            try:
                call()
                print(number, "was not refused", file=sys.stderr)
            except NotRunning as error:
                assert "create a new one after the fork" in str(error), error
                told += 1
        for client in (admin, consumer, producer):
            client.close()
        del calls, call, later, records, batches, columns, committing
        gc.collect()
        print(told == 25)
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.flush(60)
    assert later.result().offset == 1
"""


def test_sync_client_after_a_fork_prints_no_warnings() -> None:
    """No warning about an unawaited coroutine, a task or a thread."""
    with ClusterThread() as cluster:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", AFTER_A_FORK, cluster.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
