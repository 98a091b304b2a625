"""Commands suggest existing names for a topic or group that does not exist."""

import asyncio
from collections.abc import Generator

import pytest

from cases import each_case
from cli.group.commands import ottla
from judges.ottla_broker import ottla_broker
from ottla.cli.result import Failure
from ottla.cli.suggestions import nearest, with_suggestions
from ottla.cli.target import target_of
from ottla.client.admin import Admin, NewTopic

TOPICS = ("orders", "orders-dlq", "prod.payments", "Users")


@pytest.fixture(scope="module")
def cluster() -> Generator[str]:
    async def fill(bootstrap: str) -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            (await admin.create_topics([NewTopic(name) for name in TOPICS])).or_raise()
            offsets = {("orders", 0): 0}
            (await admin.alter_group_offsets("billing", offsets)).or_raise()

    with ottla_broker({"auto.create.topics.enable": "false"}) as broker:
        asyncio.run(fill(broker.bootstrap))
        yield broker.bootstrap


def test_nearest_names_are_similar_in_any_case() -> None:
    assert nearest("order", TOPICS) == ["orders", "orders-dlq"]
    assert nearest("payments", TOPICS) == ["prod.payments"]
    assert nearest("users", TOPICS) == ["Users"]
    assert nearest("zzz", TOPICS) == []
    assert len(nearest("topic-11", [f"topic-1{number}" for number in range(10)])) == 3


MISSPELT = {
    "topic describe payments": "prod.payments",
    "topic alter ordesr -p 3": "orders or orders-dlq",
    "topic delete ordesr --yes": "orders or orders-dlq",
    "config describe --topic users": "Users",
    "config set --topic users retention.ms=1": "Users",
    "config unset --topic users retention.ms": "Users",
    "offsets users:0": "Users",
    "consume users": "Users",
    "perf consume users": "Users",
    "produce users -X max.block.ms=300": "Users",
    "group describe biling": "billing",
    "group delete biling --yes": "billing",
    "group delete billing --topic users --yes": "Users",
    "group seek biling --to start": "billing",
    "group seek billing --to start --topic users": "Users",
    "topic describe __consumer_offset": "__consumer_offsets",
}


@each_case("words", MISSPELT)
def test_misspelt_name_is_suggested(cluster: str, words: str) -> None:
    refused = ottla(cluster, *words.split(), stdin=b"a line\n")
    assert refused.status == 1
    assert refused.line.rstrip().endswith(f". Did you mean {MISSPELT[words]}?"), refused.line


ABSENT = (
    "topic describe users",
    "topic alter users -p 3",
    "topic delete users --yes",
    "config describe --topic users",
    "config set --topic users retention.ms=1",
    "offsets users:0",
    "consume users",
    "group seek billing --to start --topic users",
)


@each_case("words", ABSENT)
def test_missing_topic_is_reported_alike(cluster: str, words: str) -> None:
    refused = ottla(cluster, *words.split())
    assert refused.line == "ottla: topic users does not exist. Did you mean Users?\n"


def test_suggestion_is_in_the_object(cluster: str) -> None:
    for words in ("topic describe users", "consume users"):  # among results, and instead of one
        told = ottla(cluster, *words.split(), "-o", "json").object
        error = told.get("error") or told["errors"][0]
        assert error["message"].endswith(" Did you mean Users?")


def test_failure_without_a_near_name_is_unchanged(cluster: str) -> None:
    refused = ottla(cluster, "topic", "describe", "zzz")
    assert (refused.status, "Did you mean" in refused.line) == (1, False)
    missing_partition = ottla(cluster, "offsets", "orders:9")
    assert (missing_partition.status, "Did you mean" in missing_partition.line) == (1, False)


def test_failure_stays_if_the_cluster_cannot_be_asked() -> None:
    async def broken(_: dict[str, str]) -> list[str]:
        raise OSError("unreachable")

    here = target_of({})
    failure = Failure("topic order does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
    assert asyncio.run(with_suggestions([failure], [(broken, "order")], here)) == [failure]
