"""Generates docs/reference/ and docs/cli.md from Ottla's tables.

Every page is generated from tables only. To add a page, add an entry to PAGES.

    python docs/reference/generate.py            write the pages
    python docs/reference/generate.py --check    list stale pages and exit with 1 if there are any
"""

import sys
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import typer.main

from ottla.broker.dispatch import served, served_to_brokers
from ottla.cli.kafka import scripts as scripts_of_tools
from ottla.cli.kafka.flags import Flag, Usage
from ottla.cli.kafka.scripts import Script
from ottla.cli.main import app
from ottla.cli.target import HERE
from ottla.errors import ErrorCode
from ottla.metrics import LATENCY_SECONDS, METRICS
from ottla.pipeline.options import TABLE as OPTIONS
from ottla.pipeline.run_metrics import METRICS as PIPELINE_METRICS
from ottla.pipeline.spec.decoding import key_rows
from ottla.pipeline.spec.model import (
    Expectation,
    ExpectationHook,
    Hook,
    LagHook,
    Part,
    Pipeline,
    PipelineTest,
    Profile,
    Sink,
    Source,
    Step,
    Watermark,
)
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.message import Use
from ottla.protocol.schema import Versions
from ottla.settings import connection
from ottla.settings.admin import ADMIN
from ottla.settings.broker import BROKER
from ottla.settings.config_def import ConfigDef, Required, Setting
from ottla.settings.consumer import CONSUMER
from ottla.settings.producer import PRODUCER
from ottla.settings.topic import TOPIC

FOLDER = Path(__file__).parent
# The list of differences is in the tests, which check that it is complete.
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.compat.known_differences import KNOWN  # noqa: E402

HEADER = "<!-- generated, do not edit; `make docs` -->"
DIFF_LINES_MAX = 20
CLIENTS = (PRODUCER, CONSUMER, ADMIN)
COMMON_OPTIONS = ("bootstrap_server", "profile", "settings", "output")
UNLIMITED = (1 << 31) - 1  # a maximum that no user reaches is not printed


def grid(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for row in (header, ("---",) * len(header), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def code(text: str) -> str:
    """Return the text in backticks; empty text stays empty."""
    return f"`{text}`" if text else ""


def default_cell(setting: Setting[Any]) -> str:
    """Return the default, and Kafka's default if it differs."""
    if isinstance(setting.default, Required):
        return "required"
    text = setting.default_text
    ours = "null" if text is None else code(text) or "empty"
    return ours if setting.kafka_default is None else f"{ours} (Kafka: `{setting.kafka_default}`)"


def by_name(settings: Iterable[Setting[Any]]) -> list[Setting[Any]]:
    """Sort settings by name."""
    return sorted(settings, key=lambda setting: setting.name)


def broker_page() -> Iterator[str]:
    """The page of the broker settings."""
    yield "# Broker settings"
    yield ""
    yield "The broker reads its settings from the properties file and from `--override"
    yield "name=value`. Settings that are not read-only can be changed at runtime: per-broker"
    yield "settings for a single broker, cluster-wide settings also as the default of all"
    yield "brokers. A setting marked with ° can be set per listener, as"
    yield "`listener.name.<listener>.<setting>`. SASL settings can be set per mechanism, as"
    yield "`listener.name.<listener>.<mechanism>.<setting>`."
    yield ""
    yield from grid(
        ("setting", "type", "default", "valid values", "update mode", "description"),
        (
            (
                code(row.name) + ("°" if row.per_listener else ""),
                row.kind.name,
                default_cell(row),
                code(row.range_text),
                row.dynamic.value,
                row.doc,
            )
            for row in by_name(row for row in BROKER.settings.values() if not row.no_effect)
        ),
    )


def topic_page() -> Iterator[str]:
    """The page of the topic settings, with the broker settings that provide their defaults."""
    yield "# Topic settings"
    yield ""
    yield "Topic settings are set when the topic is created and can be changed at any time. If a"
    yield "topic does not set a value, the first of the broker settings in the fourth column that"
    yield "has a value applies, converted to the unit of the topic setting."
    yield ""
    yield from grid(
        ("setting", "type", "default", "broker settings", "valid values", "description"),
        (
            (
                code(row.name),
                row.kind.name,
                default_cell(row),
                ", ".join(code(each.setting.name) for each in row.falls_back),
                code(row.range_text),
                row.doc,
            )
            for row in by_name(TOPIC.settings.values())
        ),
    )


def client_page() -> Iterator[str]:
    """The page of the client settings: shared ones first, then those of each client."""
    yield "# Client settings"
    yield ""
    yield 'Pass settings to a client by name, `{"linger.ms": 5}`, or as keywords, `linger_ms=5`.'
    yield from client_section("All clients", connection.ROWS)
    shared_names = {row.name for row in connection.ROWS}
    for table in CLIENTS:
        own = [row for row in table.settings.values() if row not in connection.ROWS]
        new = [row for row in own if row.name not in shared_names]
        yield from client_section(table.scope.capitalize(), new)
        for row in own:
            if row in new:
                continue
            yield ""
            yield f"The default of {code(row.name)} is {default_cell(row)}."


def client_section(title: str, settings: Iterable[Setting[Any]]) -> Iterator[str]:
    """A section of the client page."""
    yield ""
    yield f"## {title}"
    yield ""
    yield from grid(
        ("setting", "type", "default", "valid values", "description"),
        (
            (code(row.name), row.kind.name, default_cell(row), code(row.range_text), row.doc)
            for row in by_name(settings)
        ),
    )


def not_supported_page() -> Iterator[str]:
    """The page of Kafka's settings that Ottla ignores or does not support."""
    yield "# Ignored and unsupported settings of Kafka"
    yield ""
    yield "Ottla accepts an ignored setting and logs a warning, so that a configuration of Kafka"
    yield "can be used unchanged. An unsupported setting is an error, unless its value is one of"
    yield "the accepted values, which request what Ottla does anyway: without the error, you might"
    yield "rely on a protection or a limit that does not exist. A name that ends in `.*` is a"
    yield "prefix. The broker reports all errors of a properties file at once, with their lines."
    yield ""
    yield "An ignored broker setting with a type is one of Kafka 4.3. The broker describes it, and"
    yield "changes it at runtime if Kafka does. The other names have no type; the broker describes"
    yield "them without their value, as Kafka describes names that it does not know."
    for table in (BROKER, TOPIC, *CLIENTS):
        yield from not_supported_section(table)


def not_supported_section(table: ConfigDef) -> Iterator[str]:
    """The section of one scope on that page."""
    yield ""
    yield f"## {table.scope.capitalize()}"
    yield ""
    ignored = [(row.name, "", "", row.reason) for row in table.ignored] + [
        (row.name, row.kind.name, row.dynamic.value, row.no_effect)
        for row in table.settings.values()
        if row.no_effect
    ]
    if table is BROKER:
        yield from grid(
            ("ignored", "type", "update mode", "reason"),
            ((code(name), *others) for name, *others in sorted(ignored)),
        )
    else:
        yield from grid(
            ("ignored", "reason"), ((code(name), reason) for name, _, _, reason in sorted(ignored))
        )
    yield ""
    yield from grid(
        ("unsupported", "reason", "alternative", "accepted values"),
        (
            (
                code(row.name),
                row.reason,
                row.instead,
                ", ".join(code(value) or "empty" for value in row.harmless),
            )
            for row in sorted(table.unsupported)
        ),
    )


def errors_page() -> Iterator[str]:
    """The page of the error codes."""
    yield "# Error codes"
    yield ""
    yield "A client can retry after a retriable error; with refresh, it refreshes metadata first."
    yield ""
    reaction = {(False, False): "", (True, False): "retriable", (True, True): "retriable, refresh"}
    yield from grid(
        ("code", "name", "reaction", "description"),
        (
            (
                str(int(row)),
                code(row.name),
                reaction[row.retriable, row.refresh_metadata],
                row.text,
            )
            for row in sorted(ErrorCode)
        ),
    )


def apis_page() -> Iterator[str]:
    """The page of the APIs."""
    yield "# APIs"
    yield ""
    yield "The versions of Kafka's APIs that a broker advertises in ApiVersions, and the versions"
    yield "that Ottla can encode and decode. Flexible versions have compact lengths and tagged"
    yield "fields. Like Kafka, the broker advertises some versions that it does not support. It"
    yield "closes the connection of a client that sends such a version, or an API that it does"
    yield "not serve."
    yield ""
    yield "The broker advertises and serves the APIs between brokers only to brokers that have"
    yield "logged in: see [security.md](../security.md)."
    yield ""
    apis = served_to_brokers()
    yield f"A broker serves {len(served())} APIs to clients."
    for use in Use:
        yield ""
        yield f"## {use.value}"
        yield ""
        yield from grid(
            ("key", "API", "advertised", "supported", "flexible"),
            (
                (
                    str(api.key),
                    f"[{api.name}](../../src/ottla/protocol/messages/{api.module}.py)",
                    str(Versions(api.advertised.low, apis[api.key].high))
                    if api.key in apis
                    else "",
                    str(api.versions),
                    str(api.flexible),
                )
                for api in API_OF_KEY.values()
                if api.use is use
            ),
        )


def metrics_page() -> Iterator[str]:
    """The page of the metrics."""
    yield "# Metrics"
    yield ""
    yield "Set `ottla.metrics.listener=127.0.0.1:9192` to export metrics for Prometheus at"
    yield "`/metrics`. `/healthz` returns 200 if the broker is up and 503 if all its data"
    yield "directories have failed. `ottla dev` enables both. They have no authentication: bind"
    yield "them to loopback or use a reverse proxy."
    yield ""
    yield "Counters start at 0 when the broker starts. The metrics of a deleted topic or group"
    yield "are removed. The last column is the MBean of the same metric in Kafka."
    yield ""
    yield "In a cluster, watch the sums over all brokers. `ottla_active_controllers` should be 1,"
    yield "and these should be 0: `ottla_offline_partitions`, `ottla_under_min_isr_partitions`,"
    yield "`ottla_under_replicated_partitions` and `ottla_unclean_leader_elections_total`."
    yield ""
    yield from grid(
        ("metric", "type", "labels", "description", "Kafka MBean"),
        (
            (
                code(row.name),
                row.kind.value,
                ", ".join(map(code, row.labels)),
                row.doc,
                code(row.kafka),
            )
            for row in METRICS
        ),
    )
    yield ""
    bounds = ", ".join(f"{bound:g}" for bound in LATENCY_SECONDS)
    yield f"The upper bounds of the histogram buckets are {bounds} seconds."
    yield ""
    yield "## Metrics of a pipeline"
    yield ""
    yield "`ottla pipeline run --http 9193` exports these at `/metrics` of 127.0.0.1. Counters"
    yield "start at 0 with each run."
    yield ""
    yield from grid(
        ("metric", "type", "labels", "description"),
        (
            (code(row.name), row.kind.value, ", ".join(map(code, row.labels)), row.doc)
            for row in PIPELINE_METRICS
        ),
    )


DAMAGE = (
    (
        "an invalid batch above the recovery point, with valid batches after it",
        (
            "both brokers truncate the log at the invalid batch. Kafka deletes the valid batches "
            "after it. Ottla first sets them aside in files with names that end in "
            "`.log.truncated`, and logs the event `valid records set aside`. `ottla log dump` "
            "prints these files"
        ),
        (
            "a log with a hole would differ from its replicas, but nothing valid may be lost; see "
            "[decision 0025](../decisions/0025-cut-off-records-are-set-aside.md)"
        ),
    ),
    (
        "an invalid batch below the recovery point, in the segment that the recovery point is in",
        (
            "Kafka truncates the log at the invalid batch, as above the recovery point. Ottla "
            "keeps the log. It returns CORRUPT_MESSAGE for the offsets of the invalid batch, "
            "returns all other records, and logs the event `log recovered`"
        ),
        (
            "records that were flushed are never truncated; see "
            "[decision 0011](../decisions/0011-damage-is-kept-and-marked.md)"
        ),
    ),
    (
        "an invalid batch below the recovery point, in an earlier segment",
        (
            "neither broker reads these segments when it starts, and both return the bytes as "
            "they are: the CRC check of the consumer fails. Ottla checks every log once a week, "
            "logs the event `damage found`, and from then on does as in the row above. Kafka "
            "continues to return the bytes"
        ),
        "a replica that knows its damage can fetch the records from another one again",
    ),
)


def differences_page() -> Iterator[str]:
    """The page of the differences between the responses of Ottla and Kafka."""
    yield "# Differences from Kafka"
    yield ""
    yield "`make test` compares the responses of an Ottla broker with those of Apache Kafka 4.3.1"
    yield "to the same requests, field by field. It does not compare times, ids, addresses and the"
    yield "wording of error messages. This table lists all other differences."
    yield ""
    yield from grid(
        ("APIs", "difference", "reason"),
        ((row.apis, row.what, row.reason) for row in KNOWN),
    )
    yield ""
    yield "## Damaged files"
    yield ""
    yield "The comparison of responses does not include damaged files, which a broker finds when it"
    yield "starts after a crash. `tests/log/test_kafka_damage.py` damages files of a real Kafka."
    yield ""
    yield from grid(("damage", "difference", "reason"), DAMAGE)


def spark_page() -> Iterator[str]:
    """The page of the options of the Spark source and sink."""
    yield '# Options of `format("ottla")`'
    yield ""
    yield "The options have the names of Spark's Kafka connector and are case-insensitive. Any"
    yield "other option with the prefix `kafka.` is a [client setting](settings-client.md)."
    yield ""
    yield from grid(
        ("option", "used for", "default", "description"),
        (
            (code(row.name), ", ".join(sorted(row.uses)), row.default, row.meaning)
            for row in OPTIONS
        ),
    )


def pipeline_page() -> Iterator[str]:
    """The page of the keys of a pipeline file."""
    yield "# Keys of a pipeline file"
    yield ""
    yield "[The guide](../pipelines.md) explains them. `ottla pipeline schema` prints them as a"
    yield "JSON Schema. Texts marked with `${…}` can contain variables."
    for part in PIPELINE_TITLES:
        yield ""
        yield f"## {PIPELINE_TITLES[part]}"
        yield ""
        yield (part.__doc__ or "").strip()
        yield ""
        yield from grid(("key", "value", "default", "description"), pipeline_rows(part))


PIPELINE_TITLES: dict[type[Part], str] = {
    Pipeline: "The pipeline",
    Source: "`sources`",
    Watermark: "`watermark`",
    Expectation: "`expect`",
    Step: "`steps`",
    Sink: "`sinks`",
    Hook: "`on_failure`",
    LagHook: "`on_lag`",
    ExpectationHook: "`on_expectation`",
    Profile: "`profiles`",
    PipelineTest: "`tests`",
}


def pipeline_rows(part: type[Part]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the keys of one part of a pipeline file."""
    fields = msgspec.structs.fields(part)
    for row in key_rows(part):
        default = next(one.default for one in fields if one.encode_name == row.name)
        text = "" if default in (None, msgspec.NODEFAULT) else str(default)
        shown = "required" if row.required else code(text.lower() if text == "False" else text)
        value = f"{row.value}, `${{…}}`" if row.has_variables else row.value
        example = f" Example: `{row.example}`." if row.example else ""
        yield code(row.name), value, shown, f"{row.description}{example}"


def commands_page() -> Iterator[str]:
    """The page of the commands: `ottla` and Kafka's tools."""
    yield "# The command line"
    yield ""
    yield "`ottla` is Ottla's command-line tool. pip also installs Ottla's versions of Kafka's"
    yield "tools, under Kafka's names with and without `.sh`."
    yield "[cli-from-kafka.md](cli-from-kafka.md) lists the `ottla` command for each of Kafka's"
    yield "tools."
    yield ""
    yield "Every command has `--help`. Commands that connect to a cluster have these options:"
    yield ""
    leaves = [*leaf_commands(typer.main.get_command(app([])), ("ottla",))]
    common = next(
        [one for one in command.params if one.name in COMMON_OPTIONS]
        for _, command in leaves
        if any(one.name == "bootstrap_server" for one in command.params)
    )
    yield from option_grid(common)
    yield ""
    yield "A command uses the profile that `--profile` names, or else the one that `OTTLA_PROFILE`"
    yield "names, or else the current profile (`ottla profile use`). `-b` and `-X` override the"
    yield "settings of the profile. If none of them sets the bootstrap servers, the command"
    yield f"connects to {HERE}."
    yield ""
    yield "Exit codes: 0: success; 1: failure; 2: wrong usage; 74: cannot write the output; 130:"
    yield "Ctrl-C; 141: broken pipe (SIGPIPE); 143: SIGTERM. After Ctrl-C or SIGTERM, these"
    yield "commands exit with 0, because they run until a signal stops them: `ottla dev`, `ottla"
    yield "broker`, `ottla cluster start`, `ottla zookeeper start`, `ottla collect files` and"
    yield "`ottla pipeline run`."
    yield ""
    yield "With `-o json` or `-o yaml`, a command prints one object to stdout, even on failure."
    yield "`ottla consume` prints one object per record, and `ottla log dump` one per log entry."
    yield "Messages go to stderr. `NO_COLOR` disables colours. `OTTLA_TRACEBACK=1` prints the"
    yield "traceback of an internal error. `ottla --version` prints the version."
    yield ""
    yield "While `ottla produce`, `ottla consume`, `ottla collect files` or `ottla perf` waits for"
    yield "brokers, it prints the reason to stderr: for example, that no broker is reachable, or"
    yield "the error with which the broker refuses records. It also prints when the wait ends."
    yield ""
    yield "If a topic or group does not exist, the error suggests existing names that are similar."
    yield ""
    yield "`ottla --install-completion bash` installs shell completion for `bash`; `zsh`, `fish`,"
    yield "`powershell` and `pwsh` are also supported. If you omit the name of the shell, the"
    yield "command uses the current shell. The shell then completes commands, options and names."
    yield "Topic and group names come from the cluster, profile names from the local profile file."
    yield "`ottla --show-completion bash` prints the completion script."
    for words, command in leaves:
        yield from command_section(words, command, [describe_option(one) for one in common])
    yield ""
    yield "## Kafka's tools"
    scripts = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"][
        "scripts"
    ]
    for name, place in sorted(scripts.items()):
        if name.startswith(("kafka-", "zookeeper-")) and not name.endswith(".sh"):
            script: Script = getattr(scripts_of_tools, place.partition(":")[2])
            yield from tool_section(import_module(script.module).USAGE)


# Any: Typer's own classes have no public types.
def leaf_commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the commands of a group, in the order of `--help`."""
    for name, found in group.commands.items():
        if not hasattr(found, "commands") or found.invoke_without_command:
            yield (*words, name), found
        if hasattr(found, "commands"):
            yield from leaf_commands(found, (*words, name))


def command_section(
    words: tuple[str, ...], command: Any, common: Container[tuple[str, ...]]
) -> Iterator[str]:
    """The section of one command: help, arguments and options, without the common options."""
    params = [one for one in command.params if one.name != "help"]
    own = [
        one
        for one in params
        if one.param_type_name == "argument" or describe_option(one) not in common
    ]
    arguments = [one for one in own if one.param_type_name == "argument"]
    options = [one for one in own if one.param_type_name == "option"]
    yield ""
    yield f"## `{' '.join((*words, *(argument_form(one) for one in arguments)))}`"
    yield ""
    yield from ((command.help or "").strip() or "No help.").splitlines()
    connects = any(one.name == "bootstrap_server" for one in command.params)
    output = any(one.name == "output" and one not in own for one in params)
    documented = [one for one in arguments if one.help]
    if documented:
        yield ""
        yield from grid(
            ("argument", "description"), ((argument_form(one), one.help) for one in documented)
        )
    if options:
        yield ""
        yield from option_grid(options)
    if connects or output:
        yield ""
        others = "the options of commands that connect to a cluster" if connects else "`-o`"
        yield f"This command also accepts {others}."


def argument_form(argument: Any) -> str:
    """Return an argument as the usage line shows it."""
    return str(argument.metavar or argument.name.upper())


def option_grid(options: Iterable[Any]) -> Iterator[str]:
    """Yield a table of options."""
    yield from grid(
        ("option", "default", "description"),
        map(describe_option, options),
    )


def describe_option(option: Any) -> tuple[str, str, str]:
    """Return the row of an option in a table."""
    return option_form(option), option_default(option), option_help(option)


def option_form(option: Any) -> str:
    """Return the names of an option with the form of its value."""
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    choices = getattr(option.type, "choices", None)
    value = option.metavar or ("|".join(map(str, choices)) if choices else option.type.name.upper())
    return f"{names} {value}"


def option_default(option: Any) -> str:
    """Return the default of an option."""
    if option.is_flag or option.default is None:
        return "required" if option.required else ""
    return code(str(getattr(option.default, "value", option.default)))


def option_help(option: Any) -> str:
    """Return the help of an option, with the range of a number."""
    text = (option.help or "").strip()
    low, high = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if high is not None and high < UNLIMITED:
        return f"{text} Range: {low} to {high}."
    return f"{text} Minimum: {low}." if low else text


def tool_section(usage: Usage) -> Iterator[str]:
    """The section of one of Kafka's tools."""
    yield ""
    yield f"### `{usage.tool}`"
    yield ""
    yield usage.purpose
    if usage.arguments:
        yield ""
        yield from grid(
            ("argument", "description"), ((code(name), text) for name, text in usage.arguments)
        )
    yield ""
    yield from grid(
        ("flag", "description"),
        (
            (flag_form(flag), flag.text)
            for flag in sorted(usage.by_name.values(), key=lambda one: one.name)
        ),
    )


def flag_form(flag: Flag) -> str:
    """Return the names of a flag with the form of its value."""
    names = (
        code(str(flag)) if flag.short is None else f"{code(str(flag))}, {code(f'-{flag.short}')}"
    )
    return names if flag.takes is None else f"{names} {flag.takes}"


PAGES: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
    ("settings-broker.md", broker_page),
    ("settings-topic.md", topic_page),
    ("settings-client.md", client_page),
    ("settings-not-supported.md", not_supported_page),
    ("errors.md", errors_page),
    ("apis.md", apis_page),
    ("metrics.md", metrics_page),
    ("differences.md", differences_page),
    ("spark-options.md", spark_page),
    ("pipeline-file.md", pipeline_page),
    ("../cli.md", commands_page),
)


def render(page: Callable[[], Iterator[str]]) -> str:
    """Return the text of a page."""
    return "\n".join((HEADER, "", *page(), ""))


def stale(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the stale pages with the lines of the diff."""
    for name, page in PAGES:
        path = folder / name
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        fresh = render(page)
        if written != fresh:
            lines = unified_diff(
                written.splitlines(),
                fresh.splitlines(),
                "written",
                "from the tables",
                n=0,
                lineterm="",
            )
            yield name, list(lines)
    for path in sorted(folder.glob("*.md")):
        left_over = path.name not in dict(PAGES) and path.read_text(encoding="utf-8")
        if left_over and left_over.startswith(HEADER):
            yield path.name, ["this page is not generated any more; delete it"]


def check(folder: Path) -> int:
    """Print the stale pages; return 1 if there are any."""
    found = 0
    for name, lines in stale(folder):
        found = 1
        print(f"{name} is stale; run `make docs`")
        for line in lines[:DIFF_LINES_MAX]:
            print(f"  {line[:160]}")
        if len(lines) > DIFF_LINES_MAX:
            print(f"  and {len(lines) - DIFF_LINES_MAX} more lines")
    return found


def write(folder: Path) -> int:
    """Write every page."""
    for name, page in PAGES:
        (folder / name).write_text(render(page), encoding="utf-8")
    return 0


def main(arguments: list[str]) -> int:
    """Run the script."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    return check(FOLDER) if arguments else write(FOLDER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
