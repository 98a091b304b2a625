"""`kafka-reassign-partitions`: generate, execute, verify, cancel and list reassignments.

Invariant: output and exit codes are those of Kafka's tool. Errors are on stdout, without Java's
stack trace; wrong flags on stderr, with the usage.
"""

import asyncio
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.client_flags import integer
from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.tool import opened, print_lines, run_tool, settings_of
from ottla.cli.kafka.words import words
from ottla.cli.kafka.wrong_use import WrongUse, require
from ottla.errors import ErrorCode, OttlaError, RequestError

if TYPE_CHECKING:
    from ottla.cli.kafka.reassign.files import ReassignmentFile
    from ottla.cli.partition.cluster_replicas import MoveAdmin
    from ottla.client.admin.log_dirs import Replica
    from ottla.client.admin.reassignments import Reassignment
    from ottla.client.admin.topic_descriptions import TopicDescription
    from ottla.client.partitions import Partition

PURPOSE: Final = "Move partitions to other brokers."

USAGE = Usage(
    "kafka-reassign-partitions",
    PURPOSE,
    [
        Flag("verify", help="Show the state of the reassignment in --reassignment-json-file. If it "
             "is complete, remove its throttles."),
        Flag("generate", help="Print a new assignment of the topics in --topics-to-move-json-file "
             "to the brokers in --broker-list, without executing it."),
        Flag("execute", help="Start the reassignment in --reassignment-json-file."),
        Flag("cancel", help="Cancel the reassignment in --reassignment-json-file."),
        Flag("list", help="List the reassignments in progress."),
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers."),
        Flag("bootstrap-controller", "host:port,…", "Connect to KRaft controllers.", done=False),
        Flag("command-config", "file", "Read client settings from this properties file."),
        Flag("reassignment-json-file", "file", "Read the assignment from this JSON file: "
             '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": '
             '["any", "/data"]}], "version": 1}. log_dirs is optional.'),
        Flag("topics-to-move-json-file", "file", "With --generate: read the topics from this JSON "
             'file: {"topics": [{"topic": "t"}], "version": 1}.'),
        Flag("broker-list", "0,1", "With --generate: assign the topics to these brokers."),
        Flag("disable-rack-aware", help="With --generate: ignore the racks of brokers."),
        Flag("throttle", "bytes", "With --execute: copy at most this many bytes per second between "
             "brokers; default: no limit. When the reassignment is complete, run --verify to "
             "remove the limit."),
        Flag("replica-alter-log-dirs-throttle", "bytes", "With --execute: copy at most this many "
             "bytes per second between the directories of a broker; default: no limit."),
        Flag("timeout", "ms", "Wait at most this many milliseconds until moves between directories "
             "begin; default: 10000."),
        Flag("additional", help="With --execute: start the reassignment even while others are in "
             "progress. To change the throttle of a reassignment in progress, execute its file "
             "again with this flag."),
        Flag("preserve-throttles", help="Do not change throttles."),
        Flag("disallow-replication-factor-change", help="With --execute: refuse a change of the "
             "replication factor."),
    ],
)  # fmt: skip

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_FILE: Final = "reassignment-json-file"
_REQUIRED: Final[Mapping[str, Sequence[str]]] = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": (_FILE,),
    "verify": (_FILE,),
    "cancel": (_FILE,),
    "list": (),
}
_FILES: Final = (_FILE, "topics-to-move-json-file")
_COMMON: Final = ("bootstrap-server", "bootstrap-controller", "command-config")
_PERMITTED: Final[Mapping[str, Sequence[str]]] = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
_TIMEOUT_MS: Final = 10_000
_RETRY_S: Final = 0.1
EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
RUN_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed."
)


class Terse(OttlaError):
    """An error that the tool prints without `Error: `."""


def check_flags(given: Given) -> str:
    """Return the action; raises WrongUse if the flags do not fit together."""
    if not given.values and not given.rest:
        raise WrongUse(PURPOSE)
    actions = [one for one in ACTIONS if one in given]
    if len(actions) != 1:
        names = ", ".join(f"--{one}" for one in ACTIONS)
        raise WrongUse(f"Command must include exactly one action: {names}")
    if "bootstrap-server" not in given:
        raise WrongUse("Please specify either --bootstrap-server or --bootstrap-controller")
    (action,) = actions
    require(given, *_REQUIRED[action])
    allowed = {action, *_REQUIRED[action], *_COMMON, *_PERMITTED[action]}
    for name in given.values:
        if name not in allowed:
            raise WrongUse(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


async def act(given: Given) -> int:
    """Run the action."""
    from ottla.cli.partition.cluster_replicas import MoveAdmin

    action = check_flags(given)
    settings = settings_of(given)
    text = "".join(_read(given.one(name) or "") for name in _FILES if name in given)
    timeout_ms = integer(given, "timeout", _TIMEOUT_MS) or 0
    keeps = "preserve-throttles" in given
    if action == "generate":
        from ottla.cli.kafka.reassign.files import read_brokers, read_topics

        brokers, topics = read_brokers(given.one("broker-list") or ""), read_topics(text)
        async with await opened(MoveAdmin, settings) as admin:
            await _generate(admin, topics, brokers, by_rack="disable-rack-aware" not in given)
        return 0
    if action == "list":
        async with await opened(MoveAdmin, settings) as admin:
            print_lines(listed(await admin.list_reassignments()))
        return 0
    from ottla.cli.kafka.reassign.files import read_reassignment

    wanted = read_reassignment(text)
    if action == "execute":
        rates = (
            integer(given, "throttle", -1),
            integer(given, "replica-alter-log-dirs-throttle", -1),
        )
        wanted = wanted.checked()
        async with await opened(MoveAdmin, settings) as admin:
            await _execute(admin, given, wanted, rates, timeout_ms)
        return 0
    async with await opened(MoveAdmin, settings) as admin:
        if action == "verify":
            await _verify(admin, wanted, keeps_throttles=keeps)
        else:
            await _cancel(admin, wanted, timeout_ms, keeps_throttles=keeps)
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        raise OttlaError(f"Unable to read file {path}") from None


# --list


def listed(moving: "Mapping[Partition, Reassignment]") -> list[str]:
    """Return the lines of --list."""
    from ottla.client.partitions import partition

    if not moving:
        return ["No partition reassignments found."]
    lines = ["Current partition reassignments:"]
    for key, one in sorted(moving.items()):
        parts = [f"{partition(*key)}: replicas: {_ids(one.replicas)}."]
        parts += [f"adding: {_ids(one.adding)}."] if one.adding else []
        parts += [f"removing: {_ids(one.removing)}."] if one.removing else []
        lines.append(" ".join(parts))
    return lines


# --generate


async def _generate(
    admin: "MoveAdmin", topics: Sequence[str], brokers: Collection[int], *, by_rack: bool
) -> None:
    from random import randrange

    from ottla.cli.kafka.reassign.files import formatted
    from ottla.cluster.image import Broker
    from ottla.cluster.placement import place_replicas
    from ottla.ids import BrokerEpoch, BrokerId

    described = await _topics(admin, topics)
    current = {
        (topic.name, one.index): one.replicas
        for topic in described.values()
        for one in topic.partitions
    }
    found = [one for one in (await admin.describe_cluster()).brokers if one.id in brokers]
    racks = [one.rack if by_rack else None for one in found]
    if by_rack and None in racks and any(racks):
        raise OttlaError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    places = [
        Broker(BrokerId(one.id), BrokerEpoch(0), {}, rack)
        for one, rack in zip(found, racks, strict=True)
    ]
    proposed: dict[Partition, Sequence[int]] = {}
    for topic in described.values():
        count, factor = len(topic.partitions), len(topic.partitions[0].replicas)
        if factor > len(places):
            raise OttlaError(
                f"Replication factor: {factor} larger than available brokers: {len(places)}."
            )
        rows = place_replicas(places, range(count), factor, randrange(1 << 31))
        for index, row in enumerate(rows):
            proposed[topic.name, index] = row
    print("Current partition replica assignment")
    print(formatted(current, await _directories(admin, current)))
    print()
    print("Proposed partition reassignment configuration")
    print(formatted(proposed, {}))


async def _topics(admin: "MoveAdmin", names: Collection[str]) -> "dict[str, TopicDescription]":
    told = await admin.describe_topics(sorted({*names}))
    for name, error in told.failed.items():
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise OttlaError(_java(error, f"Topic {name} not found."))
        raise error
    return {str(name): one for name, one in told.succeeded.items()}


def _java(error: RequestError, message: str) -> str:
    """Return the message of Java's ExecutionException."""
    from ottla.cli.kafka.java_errors import class_name

    return f"{class_name(error.code)}: {message}"


async def _directories(
    admin: "MoveAdmin", replicas: "Mapping[Partition, Sequence[int]]"
) -> "dict[Replica, str]":
    """Return where replicas are; without brokers that do not respond."""
    from ottla.client.admin.log_dirs import Replica

    live = {one.id for one in (await admin.describe_cluster()).brokers}
    brokers = live & {one for row in replicas.values() for one in row}
    told = await admin.describe_log_dirs(brokers, [*replicas])
    return {
        Replica(topic, index, broker): path
        for broker, found in told.succeeded.items()
        for path, directory in found.succeeded.items()
        for (topic, index), size in directory.replicas.items()
        if not size.is_future
    }


# --execute


async def _execute(
    admin: "MoveAdmin",
    given: Given,
    wanted: "ReassignmentFile",
    rates: tuple[int | None, int | None],
    timeout_ms: int,
) -> None:
    from ottla.cli.kafka.reassign.files import formatted
    from ottla.client.partitions import partition

    replicas = wanted.replicas
    moving = await admin.list_reassignments()
    if moving and "additional" not in given:
        raise Terse(EXISTING)
    live = {one.id for one in (await admin.describe_cluster()).brokers}
    if unknown := sorted({one for row in replicas.values() for one in row} - live):
        raise OttlaError(f"Unknown broker id {unknown[0]}")
    described = await _topics(admin, {topic for topic, _ in replicas})
    current = {
        (name, one.index): one.replicas
        for name, topic in described.items()
        for one in topic.partitions
        if (name, one.index) in replicas
    }
    if missing := sorted({*replicas} - {*current}):
        names = ", ".join(str(partition(*one)) for one in missing)
        why = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise OttlaError(_java(why, f"Unable to find partition: {names}"))
    print("Current partition replica assignment")
    print()
    print(formatted(current, await _directories(admin, current)))
    print()
    print("Save this to use as the --reassignment-json-file option during rollback")
    await _throttle(admin, moving, wanted, current, rates)
    told = await admin.alter_reassignments(
        replicas, allow_factor_change="disallow-replication-factor-change" not in given
    )
    if told.failed:
        lines = [f"{partition(*key)}: {_why(key, error)}" for key, error in _sorted(told.failed)]
        raise Terse("\n".join(("Error reassigning partition(s):", *lines)))
    many = "" if len(replicas) == 1 else "s"
    print(f"Successfully started partition reassignment{many} for {_names(replicas)}")
    if wanted.directories:
        await _move_directories(admin, wanted.directories, timeout_ms)


async def _throttle(
    admin: "MoveAdmin",
    moving: "Mapping[Partition, Reassignment]",
    wanted: "ReassignmentFile",
    current: "Mapping[Partition, Sequence[int]]",
    rates: tuple[int | None, int | None],
) -> None:
    from ottla.cli.partition.throttles import (
        DIRECTORY_RATE,
        broker_throttles,
        copies,
        topic_throttles,
    )
    from ottla.client.admin.configs import ConfigResource

    rate, directory_rate = (-1 if one is None else one for one in rates)
    if rate < 0 and directory_rate < 0:
        return
    print(RUN_VERIFY)
    if rate >= 0:
        found = copies(moving, wanted.replicas, current)
        (await admin.alter_configs(topic_throttles(found))).or_raise()
        (await admin.alter_configs(broker_throttles(found, rate))).or_raise()
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if directory_rate >= 0:
        brokers = sorted({one.broker for one in wanted.directories})
        limit: dict[str, str | None] = {DIRECTORY_RATE: str(directory_rate)}
        told = await admin.alter_configs({ConfigResource.broker(one): limit for one in brokers})
        told.or_raise()
        print(f"The replica-alter-dir throttle limit was set to {directory_rate} B/s")


async def _move_directories(
    admin: "MoveAdmin", directories: "Mapping[Replica, str]", timeout_ms: int
) -> None:
    """Start moves between directories; one that needs a replica first is tried again."""
    left = dict(directories)
    deadline_s = time.monotonic() + timeout_ms / 1000
    while True:
        told = await admin.alter_replica_log_dirs(left)
        for replica, error in told.failed.items():
            if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise OttlaError(f"Failed to alter dir for {_replica(replica)}: {error}") from error
        for replica in sorted(told.succeeded, key=_by_broker):
            topic, index, broker = replica
            print(
                f"Successfully started moving log directory to {left.pop(replica)} for replica "
                f"{topic}-{index} with broker {broker} "
            )
        if not left:
            return
        if time.monotonic() >= deadline_s:
            many = "" if len(left) == 1 else "s"
            names = ",".join(_replica(one) for one in sorted(left, key=_by_broker))
            raise Terse(f"Timed out before log directory move{many} could be started for: {names}")
        await asyncio.sleep(_RETRY_S)


# --verify and --cancel


async def _verify(admin: "MoveAdmin", wanted: "ReassignmentFile", *, keeps_throttles: bool) -> None:
    from ottla.client.partitions import partition

    moving = await admin.list_reassignments()
    still = {topic for (topic, index), _ in wanted.rows if (topic, index) not in moving}
    told = await admin.describe_topics(sorted(still))
    for error in told.failed.values():
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    there = {
        (str(name), one.index): one.replicas
        for name, topic in told.succeeded.items()
        for one in topic.partitions
    }
    print("Status of partition reassignment:")
    for key, replicas in sorted(wanted.replicas.items()):
        name, present = partition(*key), there.get(key, ())
        if key in moving:
            print(f"Reassignment of partition {name} is still in progress.")
        elif [*present] == [*replicas]:
            print(f"Reassignment of partition {name} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {name}, but replica set is "
                f"{_ids(present)} rather than {_ids(replicas)}."
            )
    states = await _directory_states(admin, wanted)
    print("\n".join(line for line, _, _ in states.values()))
    are_moving = any(is_active for _, is_active, _ in states.values())
    if not moving and not are_moving and not keeps_throttles:
        await _clear_throttles(admin, wanted)


async def _cancel(
    admin: "MoveAdmin", wanted: "ReassignmentFile", timeout_ms: int, *, keeps_throttles: bool
) -> None:
    from ottla.client.partitions import partition

    moving = await admin.list_reassignments(wanted.replicas)
    if moving:
        told = await admin.alter_reassignments(dict.fromkeys(moving))
        if told.failed:
            many = "" if len(told.failed) == 1 else "s"
            lines = [
                f"{partition(*key)}: {_why(key, error)}" for key, error in _sorted(told.failed)
            ]
            first = f"Error cancelling partition reassignment{many} for:"
            raise Terse("\n".join((first, *lines)))
        many = "" if len(moving) == 1 else "s"
        print(f"Successfully cancelled partition reassignment{many} for: {_names(moving)}")
    else:
        print("None of the specified partition reassignments are active.")
    states = await _directory_states(admin, wanted)
    back = {replica: path for replica, (_, is_active, path) in states.items() if is_active}
    if back:
        await _move_directories(admin, back, timeout_ms)
    else:  # Kafka's tool does not end this line
        print("None of the specified partition moves are active.", end="")
    if not keeps_throttles:
        await _clear_throttles(admin, wanted)


async def _directory_states(
    admin: "MoveAdmin", wanted: "ReassignmentFile"
) -> "dict[Replica, tuple[str, bool, str]]":
    """Return for each replica a line, whether it moves, and its present directory."""
    found: dict[Replica, tuple[str, bool, str]] = {}
    if not wanted.directories:
        return found
    told = await admin.describe_log_dirs({one.broker for one in wanted.directories})
    for replica, target in sorted(wanted.directories.items(), key=lambda one: _by_broker(one[0])):
        topic, index, broker = replica
        present = future = None
        directories = told.succeeded.get(broker)
        for path, one in () if directories is None else directories.succeeded.items():
            size = one.replicas.get((topic, index))
            if size is not None and size.is_future:
                future = path
            elif size is not None:
                present = path
        name = f"Partition {topic}-{index}"
        is_active = present is not None and future is not None
        if present is None:
            line = (
                f"{name} is not found in any live log dir on broker {broker}. There is likely an "
                "offline log directory on the broker."
            )
        elif future == target:
            line = f"Reassignment of replica {_replica(replica)} is still in progress."
        elif future is not None:
            line = (
                f"{name} on broker {broker} is being moved to log dir {future} instead of {target}."
            )
        elif present == target:
            line = f"Reassignment of replica {_replica(replica)} completed successfully."
        else:
            line = (
                f"{name} on broker {broker} is not being moved from log dir {present} to {target}."
            )
        found[replica] = (line, is_active, present or "")
    return found


async def _clear_throttles(admin: "MoveAdmin", wanted: "ReassignmentFile") -> None:
    from ottla.cli.kafka.hash_order import in_hash_order
    from ottla.cli.partition.throttles import no_throttles

    live = {one.id for one in (await admin.describe_cluster()).brokers}
    brokers = sorted(live | {one for row in wanted.replicas.values() for one in row})
    topics = in_hash_order(topic for topic, _ in wanted.replicas)
    many = "" if len(brokers) == 1 else "s"
    print(f"Clearing broker-level throttles on broker{many} {_ids(brokers)}")
    (await admin.alter_configs(no_throttles((), brokers))).or_raise()
    many = "" if len(topics) == 1 else "s"
    print(f"Clearing topic-level throttles on topic{many} {','.join(topics)}")
    (await admin.alter_configs(no_throttles(topics, ()))).or_raise()


# Output.


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _names(keys: "Collection[Partition]") -> str:
    return ",".join(f"{topic}-{index}" for topic, index in sorted(keys))


def _sorted(
    failed: "Mapping[Partition, RequestError]",
) -> "list[tuple[Partition, RequestError]]":
    return sorted(failed.items(), key=lambda one: one[0])


def _why(key: "Partition", error: RequestError) -> str:
    return words(error, f"{key[0]}-{key[1]}")


def _by_broker(replica: "Replica") -> tuple[int, str, int]:
    return replica.broker, replica.topic, replica.partition


def _replica(replica: "Replica") -> str:
    return f"{replica.topic}-{replica.partition}-{replica.broker}"


def told(error: OttlaError) -> None:
    """Print an error where Kafka's tool prints it."""
    if isinstance(error, BadFlags):
        print(USAGE.after(error), file=sys.stderr)
    else:
        text = str(error) if isinstance(error, Terse) else f"Error: {words(error)}"
        print_lines(text.split("\n"))


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, told)
