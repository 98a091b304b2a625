"""`kafka-get-offsets`: print the first or last offsets of partitions, or those at a time.

Invariant: a partition without such an offset has no line. A partition that fails is printed on
stderr, and the others on stdout.
"""

import sys
from typing import Final

from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.tool import FAILED, run_tool, settings_of
from ottla.errors import OttlaError
from ottla.settings.invalid_settings import InvalidSettings

USAGE: Final = Usage(
    "kafka-get-offsets",
    "Print the offsets of partitions as topic:partition:offset.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("command-config", "file", "Read client settings from this properties file."),
        Flag("topic", "topic", "Print only topics that match this regular expression."),
        Flag("partitions", "0,1", "Print only these partitions of each topic."),
        Flag(
            "topic-partitions",
            "topic:0,topic:0-3,…",
            "Print only these partitions. Each entry is a regular expression for topic names, a "
            "colon, and a partition or a range of partitions, for example t:1, t:0-3, t:5- or "
            "t:-3. Without the colon, it selects all partitions. The end of a range is exclusive. "
            "Cannot be combined with --topic or --partitions.",
        ),
        Flag(
            "time",
            "time",
            "Print the offsets for this time: milliseconds since 1970, latest or -1 (default), "
            "earliest or -2, max-timestamp or -3, earliest-local or -4, latest-tiered or -5, or "
            "earliest-pending-upload or -6.",
        ),
        Flag("exclude-internal-topics", help="Exclude internal topics."),
    ],
)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)


async def act(given: Given) -> int:
    """Print the offsets."""
    if "bootstrap-server" not in given:
        raise BadFlags(
            'Missing required argument "[bootstrap-server]"' if given.values else USAGE.purpose
        )
    try:
        await _shown(given)
    except BadFlags:
        raise
    except (OttlaError, InvalidSettings) as error:
        print(f"Error occurred: {error}", file=sys.stderr)
        return FAILED
    return 0


async def _shown(given: Given) -> None:
    from ottla.cli.kafka import java_errors
    from ottla.cli.kafka.offsets.filters import parse_place, parse_rules, rules_of, wanted
    from ottla.cli.offsets.admin import OffsetAdmin
    from ottla.cli.probe import probe
    from ottla.client.partitions import partition

    patterns = given.one("topic-partitions")
    if patterns is not None and ("topic" in given or "partitions" in given):
        raise OttlaError("--topic-partitions cannot be used with --topic or --partitions")
    place = parse_place(given.one("time") or "latest")
    if patterns is not None:
        rules = parse_rules(patterns)
    else:
        rules = rules_of(given.one("topic"), given.one("partitions"))
    settings = settings_of(given)
    if why := await probe(settings):
        raise OttlaError(why)
    async with OffsetAdmin(settings) as admin:
        listed = await admin.list_topics(include_internal="exclude-internal-topics" not in given)
        known = ((name, range(one.partitions)) for name, one in listed.items())
        meant = wanted(rules, known)
        if not meant:
            raise OttlaError("Could not match any topic-partitions with the specified filters")
        told = await admin.list_offsets(dict.fromkeys(meant, place))
    for where, error in told.failed.items():
        name = partition(*where)
        print(
            f"Skip getting offsets for topic-partition {name} due to error: "
            f"{java_errors.text(error, name)}",
            file=sys.stderr,
        )
    for (topic, number), one in told.succeeded.items():
        if one.offset is not None:
            print(f"{topic}:{number}:{one.offset}")
