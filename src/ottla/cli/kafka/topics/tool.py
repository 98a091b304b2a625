"""`kafka-topics`: list, create, describe, alter and delete topics like Kafka's tool.

Invariant: all flags are checked before a request is sent.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.cli.kafka.flags import BadFlags, Flag, Given, GivenTwice, Usage
from ottla.cli.kafka.tool import opened, run_tool, settings_of
from ottla.cli.kafka.topics.selection import REPORTS, matching
from ottla.cli.kafka.words import words
from ottla.cli.kafka.wrong_use import Illegal, WrongUse, forbid, require, whole_number
from ottla.errors import ErrorCode, OttlaError, RequestError

if TYPE_CHECKING:
    from ottla.cli.topic.admin import TopicAdmin
    from ottla.client.admin.topics import NewTopic

K = TypeVar("K")

ACTIONS: Final = ("create", "list", "alter", "describe", "delete")

USAGE: Final = Usage(
    "kafka-topics",
    "List, create, describe, alter and delete topics.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("command-config", "file", "Read client settings from this properties file."),
        Flag("list", help="List topics."),
        Flag("create", help="Create a topic."),
        Flag("delete", help="Delete topics and all their records."),
        Flag("alter", help="Add partitions to topics."),
        Flag("describe", help="Describe topics and their partitions."),
        Flag(
            "topic",
            "topic",
            "With --create: create this topic. Otherwise: select the topics that match this "
            "regular expression or comma-separated list.",
        ),
        Flag("topic-id", "id", "With --describe: show the topic with this id."),
        Flag(
            "config",
            "name=value",
            "With --create: set a config of the topic; repeat for several.",
            many=True,
        ),
        Flag("delete-config", "name", "Accepted for compatibility; has no effect.", many=True),
        Flag(
            "partitions",
            "number",
            "Set the total number of partitions. If you add partitions, producers can write "
            "records with the same key to another partition than before.",
        ),
        Flag("replication-factor", "number", "With --create: set the replication factor."),
        Flag(
            "replica-assignment",
            "1:2,2:3,…",
            "Assign replicas: one list of broker ids per partition, separated by commas; in each "
            "list (1:2), put the preferred leader first.",
        ),
        Flag(
            "under-replicated-partitions",
            help="With --describe: show only partitions with replicas that are not in sync.",
        ),
        Flag(
            "unavailable-partitions",
            help="With --describe: show only partitions without a live leader.",
        ),
        Flag(
            "under-min-isr-partitions",
            help="With --describe: show only partitions with fewer in-sync replicas than "
            "min.insync.replicas, or without a leader.",
        ),
        Flag(
            "at-min-isr-partitions",
            help="With --describe: show only partitions with exactly min.insync.replicas in-sync "
            "replicas.",
        ),
        Flag(
            "topics-with-overrides",
            help="With --describe: show only topics that override configs.",
        ),
        Flag("if-exists", help="Do not fail if the topic does not exist."),
        Flag("if-not-exists", help="With --create: do not fail if the topic already exists."),
        Flag("exclude-internal", help="With --list or --describe: exclude internal topics."),
        Flag(
            "partition-size-limit-per-response",
            "number",
            "Accepted for compatibility; the broker chooses the number of partitions per response.",
        ),
    ],
)

COLLIDES: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)


def check(given: Given) -> None:
    """Check that the flags fit together."""
    if sum(action in given for action in ACTIONS) != 1:
        raise WrongUse(
            "Command must include exactly one action: "
            "--list, --describe, --create, --alter or --delete"
        )
    if "delete-config" in given:
        sys.stderr.write(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases.\n"
        )
    if "bootstrap-server" not in given:
        raise Illegal("--bootstrap-server must be specified")
    if "describe" in given and "if-exists" in given:
        if "topic" not in given and "topic-id" not in given:
            raise WrongUse("--topic or --topic-id is required to describe a topic")
        if "topic" in given and "topic-id" in given:
            print(
                "Only topic id will be used when both --topic and --topic-id are specified "
                "and topicId is not Uuid.ZERO_UUID"
            )
    if "list" not in given and "describe" not in given:
        require(given, "topic")
    if "alter" in given:
        if "config" in given:
            raise WrongUse(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option '
                '"[alter]" (To alter topic configurations, the kafka-configs tool can be used.)'
            )
        require(given, "partitions")
    _check_actions(given)


def _check_actions(given: Given) -> None:
    """Check that each flag fits the action."""
    _only_with(given, "config", "alter", "create")
    _only_with(given, "partitions", "alter", "create")
    _only_with(given, "replication-factor", "create")
    _only_with(given, "replica-assignment", "alter", "create")
    if "create" in given:
        forbid(given, "replica-assignment", ("partitions", "replication-factor"))
    for report in REPORTS:
        _only_with(given, report, "describe")
        forbid(given, report, ("topics-with-overrides",))
    _only_with(given, "topics-with-overrides", "describe")
    _only_with(given, "if-exists", "alter", "delete", "describe")
    _only_with(given, "if-not-exists", "create")
    _only_with(given, "exclude-internal", "list", "describe")


def _only_with(given: Given, name: str, *actions: str) -> None:
    forbid(given, name, (action for action in ACTIONS if action not in actions))


async def act(given: Given) -> int:
    """Run the action of the flags."""
    if not given.values and not given.rest:
        raise WrongUse(USAGE.purpose)
    check(given)
    settings = settings_of(given)
    wanted = new_topic(given) if "create" in given or "alter" in given else None

    if "list" in given:
        from ottla.cli.topic_list_admin import ListAdmin

        async with await opened(ListAdmin, settings) as lister:
            print("\n".join(await matching(lister, given)))
        return 0
    if "describe" in given:
        from ottla.cli.kafka.topics.lines import TopicReader, describe

        async with await opened(TopicReader, settings) as reader:
            await describe(reader, given)
        return 0

    from ottla.cli.topic.admin import TopicAdmin

    async with await opened(TopicAdmin, settings) as admin:
        if wanted is not None and "create" in given:
            await _create(admin, wanted, if_not_exists="if-not-exists" in given)
        elif wanted is not None:
            await _alter(admin, given, wanted)
        else:
            await _delete(admin, given)
    return 0


def new_topic(given: Given) -> "NewTopic":
    """Return the topic to create, or the one to alter with its changes."""
    from ottla.client.admin.topics import NewTopic

    replicas = _replicas(given.one("replica-assignment") or "")
    return NewTopic(
        given.one("topic") or "",
        whole_number(given, "partitions"),
        whole_number(given, "replication-factor"),
        _configs(given.all("config")),
        replicas or None,
    )


def _configs(said: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in said:
        # Java's String.split drops empty strings at the end.
        parts = one.split("=")
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        if len(parts) != 2:
            raise OttlaError(
                "requirement failed: Invalid topic config: "
                'all configs to be added must be in the format "key=val".'
            )
        found[parts[0].strip()] = parts[1].strip()
    return found


def _replicas(text: str) -> dict[int, list[int]]:
    """Parse the brokers of each partition."""
    found: dict[int, list[int]] = {}
    for index, one in enumerate(text.split(",") if text else ()):
        brokers: list[int] = []
        for word in one.split(":"):
            try:
                broker = int(word)
            except ValueError:
                broker = None
            if broker is None or not -(1 << 31) <= broker < 1 << 31:  # not a Java int
                raise OttlaError(f'For input string: "{word.strip()}"')
            brokers.append(broker)
        if twice := [str(broker) for broker in {*brokers} if brokers.count(broker) > 1]:
            raise OttlaError(
                f"Partition replica lists may not contain duplicate entries: {','.join(twice)}"
            )
        if len(brokers) != len(found.get(0, brokers)):
            raise OttlaError(f"Partition {index} has different replication factor: {brokers}")
        found[index] = brokers
    return found


async def _create(admin: "TopicAdmin", topic: "NewTopic", *, if_not_exists: bool) -> None:
    from ottla.cli.topic.warnings import can_collide

    if can_collide(topic.name):
        print(COLLIDES)
    if topic.replication_factor is not None and not 1 <= topic.replication_factor < 1 << 15:
        raise OttlaError("The replication factor must be between 1 and 32767 inclusive")
    if topic.partitions is not None and topic.partitions < 1:
        raise OttlaError("The partitions must be greater than 0")
    told = await admin.create_topics([topic])
    error = told.failed.get(topic.name)
    if error is None:
        print(f"Created topic {topic.name}.")
    elif not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
        raise _Of(error, topic.name)


async def _alter(admin: "TopicAdmin", given: Given, wanted: "NewTopic") -> None:
    from ottla.client.admin.topics import NewPartitions

    names = await matching(admin, given, "if-exists" not in given)
    total = wanted.partitions or 0
    totals: dict[str, int | NewPartitions] = dict.fromkeys(names, total)
    if wanted.replicas and names:
        described = await admin.describe_topics(names)
        for name in names:
            more = [*wanted.replicas.values()][len(described[name].partitions) :]
            totals[name] = NewPartitions(total, more)
    _raise_first((await admin.create_partitions(totals)).failed)


async def _delete(admin: "TopicAdmin", given: Given) -> None:
    names = await matching(admin, given, "if-exists" not in given)
    _raise_first((await admin.delete_topics(names)).failed)


class _Of(OttlaError):
    """An error of a request with Kafka's message; `about` is the subject of the request."""

    def __init__(self, error: RequestError, about: object) -> None:
        super().__init__(words(error, about))


def _raise_first(failed: Mapping[K, RequestError]) -> None:
    for name, error in failed.items():
        raise _Of(error, name)


def told(error: OttlaError) -> None:
    """Print an error where Kafka's tool prints it."""
    if isinstance(error, WrongUse):
        print(USAGE.after(error), file=sys.stderr)
    elif isinstance(error, Illegal | BadFlags) and not isinstance(error, GivenTwice):
        print(error, file=sys.stderr)
    else:
        print(f"Error while executing topic command : {words(error)}")


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, told)
