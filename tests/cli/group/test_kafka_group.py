"""`ottla group` and `ottla offsets` on a real Kafka, with and without rights."""

import asyncio
from collections.abc import Generator

import pytest

from cli.group.commands import Ran, ottla
from cli.group.sample_groups import (
    IDLE,
    LONG,
    ORDERS,
    VOID,
    busy_group,
    committed,
    fill,
    idle_groups,
)
from judges.kafka_broker import KafkaBroker
from ottla.client.admin import (
    Acl,
    AclResource,
    Admin,
    Operation,
    ScramPassword,
)
from ottla.client.producer.producer import Producer
from ottla.sync import Admin as SyncAdmin
from shared_kafka import SharedKafka


@pytest.fixture(scope="module")
def kafka(shared_kafka: SharedKafka) -> Generator[KafkaBroker]:
    broker = shared_kafka.broker
    asyncio.run(fill(broker.bootstrap))
    asyncio.run(idle_groups(broker.bootstrap, "idle"))
    yield broker
    with SyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([ORDERS, LONG, VOID]).or_raise()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_of_either_protocol_is_described(kafka: KafkaBroker, protocol: str) -> None:
    name = f"busy-{protocol}"
    with busy_group(kafka.bootstrap, name, protocol):
        told = ottla(kafka.bootstrap, "group", "describe", name, "-o", "json").object["groups"][0]
        refused = ottla(kafka.bootstrap, "group", "seek", name, "--to", "end", "--execute")
    assert (told["type"], told["state"], told["lag"]) == (protocol, "Stable", 7)
    assert told["since"] == "2020-09-13T12:26:43.000Z"
    assert told["members"][0]["lag"] == 7
    assert (refused.status, committed(kafka.bootstrap, name)) == (1, {(ORDERS, 0): 3})
    assert "has a member" in refused.line


def test_seek_is_planned_and_executed(kafka: KafkaBroker) -> None:
    asyncio.run(idle_groups(kafka.bootstrap, "moved"))
    asked = ["group", "seek", "moved", "--to", "@2020-09-13T12:26:41.001", "-t", ORDERS]
    plan = ottla(kafka.bootstrap, *asked, "-o", "json").object
    assert [one["after"] for one in plan["partitions"]] == [2, 2, 0]
    assert [one["limit"] for one in plan["partitions"]] == [None, None, "no_later"]
    assert committed(kafka.bootstrap, "moved") == IDLE
    assert ottla(kafka.bootstrap, *asked, "--execute").status == 0
    moved = {(ORDERS, 0): 2, (ORDERS, 1): 2, (ORDERS, 2): 0, (LONG, 0): 1}
    assert committed(kafka.bootstrap, "moved") == moved
    assert ottla(kafka.bootstrap, "group", "delete", "moved", "--yes").out == "Deleted moved.\n"
    assert committed(kafka.bootstrap, "moved") == {}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lag_time_is_read_from_the_middle_of_a_batch(kafka: KafkaBroker, codec: str) -> None:
    topic = f"packed-{codec}"

    async def write() -> None:
        async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            await admin.create_topic(topic, 1, config={"retention.ms": "-1"})
        settings = {"compression.type": codec, "linger.ms": 60_000}
        async with Producer(settings, bootstrap_servers=kafka.bootstrap) as producer:
            for at in range(100):
                await producer.send(topic, b"v" * 100, timestamp_ms=1_600_000_000_000 + at)
            await producer.flush()

    asyncio.run(write())
    asked = ["group", "seek", f"lags-{codec}", "--to", "42", "-t", topic, "--execute"]
    assert ottla(kafka.bootstrap, *asked).status == 0
    described = ottla(kafka.bootstrap, "group", "describe", f"lags-{codec}", "-o", "json").object
    (told,) = described["groups"]
    assert (told["lag"], told["since"]) == (58, "2020-09-13T12:26:40.042Z")


def test_lag_time_is_that_of_a_record_and_not_of_a_marker(
    kafka: KafkaBroker,
) -> None:
    async def write() -> None:
        async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            await admin.create_topic("marked", 1, config={"retention.ms": "-1"})
        settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": "marks"}
        async with Producer(settings) as producer:
            for at in range(3):  # each record is followed by a transaction marker
                async with producer.transaction():
                    await producer.send("marked", b"v", timestamp_ms=1_600_000_000_000 + at)

    asyncio.run(write())
    for to, since in (("1", "40.001Z"), ("2", "40.001Z"), ("3", "40.002Z")):
        asked = ["group", "seek", "marks", "--to", to, "-t", "marked", "--execute"]
        assert ottla(kafka.bootstrap, *asked).status == 0
        told = ottla(kafka.bootstrap, "group", "describe", "marks", "-o", "json").object
        assert told["groups"][0]["since"] == f"2020-09-13T12:26:{since}"
    asked = ["group", "seek", "marks", "--to", "5", "-t", "marked", "--execute"]
    assert ottla(kafka.bootstrap, *asked).status == 0
    (told,) = ottla(kafka.bootstrap, "group", "describe", "marks", "-o", "json").object["groups"]
    assert (told["lag"], told["since"]) == (1, None)  # the last offset is that of a marker


def test_offsets_at_a_time_are_listed(kafka: KafkaBroker) -> None:
    asked = ["offsets", f"{ORDERS}:0", "--at", "@2020-09-13T12:26:43.500", "-o", "json"]
    assert ottla(kafka.bootstrap, *asked).object["partitions"] == [
        {
            "topic": ORDERS,
            "partition": 0,
            "first": 0,
            "next": 10,
            "offsets": 10,
            "at": 4,
            "at_time": "2020-09-13T12:26:44.000Z",
        }
    ]


async def allow(bootstrap: str) -> None:
    """Let dora describe a group and its topics, but not read records."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.alter_scram_users([ScramPassword("dora", "secret")])).or_raise()
        seen = [(AclResource.GROUP, "idle"), (AclResource.TOPIC, ORDERS), (AclResource.TOPIC, LONG)]
        rules = [Acl(kind, name, "User:dora", Operation.DESCRIBE) for kind, name in seen]
        (await admin.create_acls(rules)).or_raise()


def test_missing_rights_are_reported_and_nothing_changes(kafka: KafkaBroker) -> None:
    asyncio.run(allow(kafka.bootstrap))
    login = f"127.0.0.1:{kafka.ports['SASL']}"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "dora",
        "sasl.password": "secret",
    }
    words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]

    def dora(*arguments: str) -> Ran:
        return ottla(login, *arguments, *words, "-o", "json")

    while (told := dora("group", "describe", "idle")).status:  # until the rules take effect
        pass
    (group,) = told.object["groups"]
    assert group["lag"] == 9
    assert group["since"] is None  # requires the right to read
    for words_ in ("describe other", "seek idle --to start --execute", "delete idle --yes"):
        refused = dora("group", *words_.split())
        assert refused.status == 1
        (error,) = refused.object.get("errors") or [refused.object["error"]]
        assert error["code"] == "GROUP_AUTHORIZATION_FAILED"
    refused = dora("offsets", "void")
    assert refused.status == 1
    assert refused.object["error"]["code"] == "TOPIC_AUTHORIZATION_FAILED"
    assert committed(kafka.bootstrap, "idle") == IDLE
