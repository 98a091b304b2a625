"""`kafka-log-dirs`: describe the log directories of brokers as JSON.

Invariant: the object has Kafka's keys in Kafka's order.
"""

import sys
from collections.abc import Collection, Mapping
from json import dumps
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.tool import FAILED, run_tool, settings_of
from ottla.cli.output import Json
from ottla.errors import OttlaError, RequestError
from ottla.settings.invalid_settings import InvalidSettings

if TYPE_CHECKING:
    from ottla.client.admin.log_dirs import LogDirs


USAGE: Final = Usage(
    "kafka-log-dirs",
    "Describe the log directories of brokers as JSON.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("command-config", "file", "Read client settings from this properties file."),
        Flag("describe", help="Describe log directories. Required."),
        Flag("topic-list", "topic,…", "Describe only these topics; default: all topics."),
        Flag("broker-list", "0,1", "Describe only these brokers; default: all brokers."),
    ],
)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)


async def act(given: Given) -> int:
    """Print the log directories."""
    for name in ("bootstrap-server", "describe"):
        if name not in given:
            raise BadFlags(f'Missing required argument "[{name}]"')
    try:
        await _described(given)
    except (OttlaError, InvalidSettings) as error:
        print(error, file=sys.stderr)
        return FAILED
    return 0


async def _described(given: Given) -> None:
    from ottla.cli.kafka import java_errors
    from ottla.cli.probe import probe
    from ottla.client.admin.administration import Administration
    from ottla.client.admin.cluster import ClusterCalls
    from ottla.client.admin.log_dirs import LogDirCalls

    class LogDirAdmin(Administration, ClusterCalls, LogDirCalls):
        """Describes log directories of brokers."""

    topics = {one for one in (given.one("topic-list") or "").split(",") if one}
    asked = _brokers(given.one("broker-list") or "")
    settings = settings_of(given)
    if why := await probe(settings):
        raise OttlaError(why)
    async with LogDirAdmin(settings) as admin:
        cluster = await admin.describe_cluster()
        live = [one.id for one in cluster.brokers]
        if missing := asked - {*live}:
            raise OttlaError(
                "ERROR: The given brokers do not exist from --broker-list: "
                f"{_list(missing)}. Current existent brokers: {_list(live)}"
            )
        brokers = sorted(asked or live)
        print("Querying brokers for log directories information")
        try:
            told = (await admin.describe_log_dirs(brokers)).or_raise()
        except RequestError as error:
            raise OttlaError(java_errors.text(error)) from error
    print(f"Received log directory information from brokers {_list(brokers)}")
    print(dumps(described(told, topics), ensure_ascii=False, separators=(",", ":")))


def _brokers(text: str) -> set[int]:
    try:
        return {int(one) for one in text.split(",") if one}
    except ValueError:
        raise OttlaError(f'For input string: "{text}"') from None


def _list(numbers: Collection[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def described(told: "Mapping[int, LogDirs]", topics: Collection[str]) -> dict[str, Json]:
    """Return the JSON object; without topics it has all topics."""
    return {
        "brokers": [
            {"broker": broker, "logDirs": _dirs(dirs, topics)} for broker, dirs in told.items()
        ],
        "version": 1,
    }


def _dirs(told: "LogDirs", topics: Collection[str]) -> list[Json]:
    from ottla.cli.kafka.java_errors import class_name
    from ottla.client.partitions import partition

    dirs: list[Json] = []
    for path, found in told.told.items():
        failed = found if isinstance(found, RequestError) else None
        replicas = () if isinstance(found, RequestError) else found.replicas.items()
        dirs.append(
            {
                "partitions": [
                    {
                        "partition": str(partition(*where)),
                        "size": one.size_bytes,
                        "offsetLag": one.offset_lag,
                        "isFuture": one.is_future,
                    }
                    for where, one in sorted(replicas)
                    if not topics or where[0] in topics
                ],
                "error": failed and class_name(failed.code),
                "logDir": path,
            }
        )
    return dirs
