"""Kafka's command-line tools on our broker.

One Java process runs all of them in order; each test checks the output of one tool.
"""

import json
from typing import NamedTuple

import pytest

from judges.ottla_broker import ottla_broker
from kafka_tools import KafkaTools, Said

TOPICS = "kafka-topics"
CONFIGS = "kafka-configs"
GROUPS = "kafka-consumer-groups"
OF_TOPIC = "--entity-type topics --entity-name tools"


class Run(NamedTuple):
    """A tool with its arguments and its expected output."""

    tool: str
    arguments: str
    says: tuple[str, ...] = ()
    status: int = 0
    reads: str = ""
    lacks: tuple[str, ...] = ()


RUNS = {
    "create": Run(
        TOPICS,
        "--create --topic tools --partitions 3 --config retention.ms=86400000",
        ("Created topic tools.",),
    ),
    "create again": Run(TOPICS, "--create --topic tools", ("already exists",), 1),
    "create if missing": Run(TOPICS, "--create --if-not-exists --topic tools"),
    "list": Run(TOPICS, "--list", ("tools\n",)),
    "describe": Run(
        TOPICS,
        "--describe --topic tools",
        (
            "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=86400000\n",
            "Partition: 2\tLeader: 1\tReplicas: 1\tIsr: 1",
        ),
    ),
    "grow": Run(TOPICS, "--alter --topic tools --partitions 4"),
    "shrink": Run(TOPICS, "--alter --topic tools --partitions 2", ("not be an increase",), 1),
    "describe nothing": Run(TOPICS, "--describe --topic absent", ("does not exist",), 1),
    "set": Run(
        CONFIGS,
        f"--alter {OF_TOPIC} "
        "--add-config max.message.bytes=2000000,cleanup.policy=[compact,delete]",
        ("Completed updating config for topic tools.",),
    ),
    "describe settings": Run(
        CONFIGS,
        f"--describe {OF_TOPIC}",
        (
            "max.message.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message",
            "=2000000, DEFAULT_CONFIG:message.max.bytes=1048588}",
            "cleanup.policy=compact,delete ",
        ),
    ),
    "unset": Run(CONFIGS, f"--alter {OF_TOPIC} --delete-config max.message.bytes,cleanup.policy"),
    "unset and gone": Run(CONFIGS, f"--describe {OF_TOPIC}", lacks=("max.message.bytes",)),
    "set badly": Run(
        CONFIGS,
        f"--alter {OF_TOPIC} --add-config retention.ms=soon",
        ("InvalidConfigurationException",),
        1,
    ),
    "set for all": Run(
        CONFIGS,
        "--alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2",
        ("Completed updating default config for brokers",),
    ),
    "describe for all": Run(
        CONFIGS,
        "--describe --entity-type brokers --entity-default",
        ("log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:",),
    ),
    "describe a broker": Run(
        CONFIGS,
        "--describe --all --entity-type brokers --entity-name 1",
        ("node.id=1 ", "log.retention.hours=168 "),
    ),
    "produce": Run(
        "kafka-console-producer",
        "--topic tools --reader-property parse.key=true --reader-property key.separator=: "
        "--compression-codec zstd",
        reads="k1:v1\nk2:v2\nk3:v3\n",
    ),
    "consume": Run(
        "kafka-console-consumer",
        "--topic tools --from-beginning --max-messages 3 --timeout-ms 20000 --group console "
        "--formatter-property print.key=true",
        ("k1\tv1\n", "k2\tv2\n", "k3\tv3\n", "Processed a total of 3 messages"),
    ),
    "offsets": Run(
        "kafka-get-offsets", "--topic tools", ("tools:0:1\n", "tools:1:2\n", "tools:3:0\n")
    ),
    "first offsets": Run(
        "kafka-get-offsets", "--topic tools --time earliest", ("tools:0:0\n", "tools:1:0\n")
    ),
    "list groups": Run(GROUPS, "--list", ("console\n",)),
    "describe group": Run(GROUPS, "--describe --group console", ("has no active members", "LAG")),
    "states": Run(GROUPS, "--describe --state --all-groups", ("Empty",)),
    "reset offsets": Run(
        GROUPS,
        "--reset-offsets --to-earliest --execute --group console --topic tools",
        ("NEW-OFFSET",),
    ),
    "forget offsets": Run(
        GROUPS, "--delete-offsets --group console --topic tools", ("Successful",)
    ),
    "delete group": Run(GROUPS, "--delete --group console", ("was successful",)),
    "producer performance": Run(
        "kafka-producer-perf-test",
        "--topic tools --num-records 5000 --record-size 100 --throughput -1 "
        "--command-property acks=all",
        ("5000 records sent",),
    ),
    "consumer performance": Run(
        "kafka-consumer-perf-test",
        "--topic tools --num-records 5000 --timeout 20000",
        (" 5000, ",),
    ),
    "latency": Run(
        "kafka-e2e-latency",
        "--topic tools --num-records 50 --producer-acks all --record-size 20",
        ("Avg latency",),
    ),
    "verifiable topic": Run(TOPICS, "--create --topic verified --partitions 1"),
    # The tool prints the rest when its process ends, and here the process continues. But the next
    # consumer ends only after it has read all records.
    "verifiable producer": Run(
        "kafka-verifiable-producer", "--topic verified --max-messages 100", ("startup_complete",)
    ),
    "verifiable consumer": Run(
        "kafka-verifiable-consumer",
        "--topic verified --group-id verifiable --max-messages 100 --reset-policy earliest",
        ("partitions_assigned", "records_consumed", '"offset":100', '"success":true'),
    ),
    "verified": Run("kafka-get-offsets", "--topic verified", ("verified:0:100\n",)),
    "delete records": Run(
        "kafka-delete-records",
        "--offset-json-file {offsets}",
        ("partition: tools-0\tlow_watermark: 5",),
    ),
    "directories": Run(
        "kafka-log-dirs", "--describe --topic-list tools", ('"partition":"tools-3"',)
    ),
    "versions": Run(
        "kafka-broker-api-versions",
        "",
        ("Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]"),
    ),
    "cluster": Run("kafka-cluster", "cluster-id", ("Cluster ID: ",)),
    "delete": Run(TOPICS, "--delete --topic tools"),
    "delete again": Run(TOPICS, "--delete --topic tools", ("does not exist",), 1),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, java_tools: KafkaTools) -> dict[str, Said]:
    """The output of each tool."""
    folder = tmp_path_factory.mktemp("tools")
    offsets = folder / "offsets.json"
    wanted = {"topic": "tools", "partition": 0, "offset": 5}
    offsets.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    with ottla_broker() as broker:
        found: dict[str, Said] = {}
        for name, run in RUNS.items():
            arguments = run.arguments.replace("{offsets}", str(offsets)).split()
            # The cluster tool has a command before its options.
            address = ["--bootstrap-server", broker.bootstrap]
            found[name] = java_tools.run(run.tool, *arguments, *address, stdin=run.reads)
        return found


@pytest.mark.parametrize("name", RUNS)
def test_tool_output_equals_kafka(said: dict[str, Said], name: str) -> None:
    run = RUNS[name]
    code, out, err = said[name]
    text = out + err
    assert code == run.status, text
    for part in run.says:
        assert part in text
    for part in run.lacks:
        assert part not in text
