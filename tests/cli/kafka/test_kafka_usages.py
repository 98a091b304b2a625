"""Help, versions and abbreviated flags of Ottla's tools, compared with Kafka's (recorded)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cli.console import SCRIPTS, command
from judges.recording import Json, Scenario
from kafka_tools import CLASSES, KafkaTools, Said
from recorded import recording, scenario

__all__ = ["recording", "scenario"]  # fixtures

pytestmark = pytest.mark.recorded

TOOLS = sorted(name for name in CLASSES if (SCRIPTS / name).exists())
# Kafka's script answers differently from its class, whose errors go to the log.
OF_THE_SCRIPT = {
    ("kafka-server-start", words) for words in ("", "--hel", "--versio", "-x", "-help")
}
# These use argparse4j, which takes one dash as the start of a one-letter flag.
OF_LETTERS = {
    (tool, words)
    for tool in (
        "kafka-cluster",
        "kafka-producer-perf-test",
        "kafka-verifiable-consumer",
        "kafka-verifiable-producer",
    )
    for words in ("-x", "-help")
}


def manner(said: Said) -> Json:
    """Return the exit code, the streams that were written, and whether the flag is unknown."""
    is_unknown = "is not a recognized option" in said.err or "unrecognized argument" in said.err
    return {"code": said.code, "out": bool(said.out), "err": bool(said.err), "unknown": is_unknown}


@pytest.mark.parametrize("words", ["", "--help", "--version", "--hel", "--versio", "-x", "-help"])
def test_every_tool_answers_as_javas(
    scenario: Scenario, java_tools: KafkaTools, words: str
) -> None:
    tools = [one for one in TOOLS if (one, words) not in OF_THE_SCRIPT | OF_LETTERS]
    assert len(tools) >= 11

    def ours(tool: str) -> Said:
        return Said.by(command(tool, *words.split()))

    with ThreadPoolExecutor(2) as pool:
        told = dict(zip(tools, pool.map(ours, tools), strict=True))
    for tool in tools:
        theirs = scenario.answer(
            f"{tool} {words}", lambda tool=tool: manner(java_tools.run(tool, *words.split()))
        )
        assert manner(told[tool]) == theirs, (tool, told[tool])
        assert "Traceback" not in told[tool].err


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("kafka-cluster", "cluster-id --hel"),
        ("kafka-cluster", "cluster-id --version"),
        ("kafka-cluster", "cluster-id --conf /none --bootstrap-server a:1"),
        ("kafka-configs", "--describ --topic a"),
        ("kafka-console-consumer", "--topi a"),
        ("kafka-producer-perf-test", "--topi a"),
        ("kafka-topics", "--lis"),
        ("kafka-topics", "-list"),
        ("kafka-topics", "-list -zookeeper a:1"),
        ("kafka-console-producer", "-topic=a"),
        ("kafka-verifiable-consumer", "--topi a"),
        ("kafka-verifiable-producer", "--topi a --bootstrap-server b:1 --acks 7"),
    ],
)
def test_shortened_flag_is_accepted_where_java_accepts_it(
    scenario: Scenario, java_tools: KafkaTools, tool: str, words: str
) -> None:
    own = Said.by(command(tool, *words.split()))
    theirs = scenario.answer(
        f"{tool} {words}", lambda: manner(java_tools.run(tool, *words.split()))
    )
    assert manner(own) == theirs, own
