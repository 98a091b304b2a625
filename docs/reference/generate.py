"""Writes docs/reference/ and docs/cli.md from Ottla's tables, or says which pages are stale.

Invariant: a page holds nothing that is not in a table, so writing twice changes nothing. A new
page is one more entry in PAGES.

    python docs/reference/generate.py            write the pages
    python docs/reference/generate.py --check    write nothing; fail and name the stale pages
"""

import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main

from ottla.broker.dispatch import served
from ottla.cli.kafka import scripts as scripts_of_tools
from ottla.cli.kafka.flags import Usage
from ottla.cli.kafka.scripts import Script
from ottla.cli.main import app
from ottla.errors import ErrorCode
from ottla.metrics import LATENCY_SECONDS, METRICS
from ottla.pipeline.options import TABLE as OPTIONS
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
# The list of differences lies beside the tests that hold it to be complete.
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.compat.known_differences import KNOWN  # noqa: E402

HEADER = "<!-- generated, do not edit; `make docs` -->"
DIFF_LINES_MAX = 20
CLIENTS = (PRODUCER, CONSUMER, ADMIN)


def grid(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    for row in (header, ("---",) * len(header), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def code(text: str) -> str:
    """The text in backticks, empty when it is empty."""
    return f"`{text}`" if text else ""


def default_cell(setting: Setting[Any]) -> str:
    """The default, and Kafka's where it is another."""
    if isinstance(setting.default, Required):
        return "required"
    text = setting.default_text
    ours = "null" if text is None else code(text) or "empty"
    return ours if setting.kafka_default is None else f"{ours} (Kafka: `{setting.kafka_default}`)"


def by_name(settings: Iterable[Setting[Any]]) -> list[Setting[Any]]:
    """The rows in the order in which a reader looks them up."""
    return sorted(settings, key=lambda setting: setting.name)


def broker_page() -> Iterator[str]:
    """Every setting of the broker."""
    yield "# Broker settings"
    yield ""
    yield "A broker reads them from its properties file and from `--override name=value`. Those"
    yield "that are not read-only can be changed while it runs, for one broker (per-broker) or for"
    yield "all (cluster-wide too). A setting marked with ° can be given for one listener alone, as"
    yield "`listener.name.<listener>.<setting>`, and one about SASL for one mechanism on it, as"
    yield "`listener.name.<listener>.<mechanism>.<setting>`."
    yield ""
    yield from grid(
        ("setting", "type", "default", "valid", "change", "what it does"),
        (
            (
                code(row.name) + ("°" if row.per_listener else ""),
                row.kind.name,
                default_cell(row),
                code(row.range_text),
                row.dynamic.value,
                row.doc,
            )
            for row in by_name(BROKER.settings.values())
        ),
    )


def topic_page() -> Iterator[str]:
    """Every setting of a topic, with the broker settings that answer for it."""
    yield "# Topic settings"
    yield ""
    yield "A topic gets them when it is created, and they can be changed at any time. What a topic"
    yield "does not set comes from the broker settings in the fourth column, the first that has a"
    yield "value; hours and minutes are converted."
    yield ""
    yield from grid(
        ("setting", "type", "default", "from the broker's", "valid", "what it does"),
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
    """Every setting of the clients: what all share once, then each client's own."""
    yield "# Client settings"
    yield ""
    yield 'Python takes them by their names, `{"linger.ms": 5}`, or as keywords, `linger_ms=5`.'
    yield from client_section("Every client", connection.ROWS)
    shared_names = {row.name for row in connection.ROWS}
    for table in CLIENTS:
        own = [row for row in table.settings.values() if row not in connection.ROWS]
        new = [row for row in own if row.name not in shared_names]
        yield from client_section(f"The {table.scope}", new)
        for row in own:
            if row in new:
                continue
            yield ""
            yield f"{code(row.name)} is {default_cell(row)} here."


def client_section(title: str, settings: Iterable[Setting[Any]]) -> Iterator[str]:
    """One part of the clients' page."""
    yield ""
    yield f"## {title}"
    yield ""
    yield from grid(
        ("setting", "type", "default", "valid", "what it does"),
        (
            (code(row.name), row.kind.name, default_cell(row), code(row.range_text), row.doc)
            for row in by_name(settings)
        ),
    )


def not_supported_page() -> Iterator[str]:
    """What Kafka has and Ottla has not, and why."""
    yield "# Kafka's settings that Ottla does not have"
    yield ""
    yield "A setting without effect is accepted with a warning, so that a file for Kafka works."
    yield "One that is not supported stops the start, unless its value asks for what Ottla does"
    yield "anyway."
    for table in (BROKER, TOPIC, *CLIENTS):
        yield from not_supported_section(table)


def not_supported_section(table: ConfigDef) -> Iterator[str]:
    """One scope's part of that page."""
    yield ""
    yield f"## {table.scope.capitalize()}"
    yield ""
    yield from grid(
        ("without effect", "because"),
        ((code(row.name), row.reason) for row in sorted(table.ignored)),
    )
    yield ""
    yield from grid(
        ("not supported", "because", "instead", "accepted all the same"),
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
    """Kafka's error codes."""
    yield "# Error codes"
    yield ""
    yield "A retriable error may pass by itself; one marked refresh asks for fresh metadata."
    yield ""
    reaction = {(False, False): "", (True, False): "retriable", (True, True): "retriable, refresh"}
    yield from grid(
        ("code", "name", "reaction", "what happened and what to do"),
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
    """The APIs of the protocol."""
    yield "# APIs"
    yield ""
    yield "Which of Kafka's APIs a broker serves, and which versions Ottla reads and writes. From"
    yield "the flexible ones on, lengths are varints and structures may carry tagged fields. A"
    yield "version that is served and not read is told of by ApiVersions, as Kafka does it, and the"
    yield "connection that uses it is closed. So is one that asks for an API that is not served."
    yield ""
    apis = served()
    yield f"A broker serves {len(apis)} APIs."
    for use in Use:
        yield ""
        yield f"## For {use.value}"
        yield ""
        yield from grid(
            ("key", "API", "served", "read and written", "flexible"),
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
    """What a broker counts."""
    yield "# Metrics"
    yield ""
    yield "`ottla.metrics.listener=127.0.0.1:9192` opens a page for Prometheus at `/metrics`, and"
    yield "`/healthz`, which answers 200 when the broker serves and 503 when all its data"
    yield "directories have failed. `ottla dev` opens them by itself. There is no login: keep them"
    yield "on the machine, or behind something that has one."
    yield ""
    yield "Counters begin at 0 when the broker starts. A topic or group that is deleted goes from"
    yield "the page. Kafka's name is that of its MBean, for those who have dashboards of it."
    yield ""
    yield from grid(
        ("metric", "type", "labels", "what it says", "Kafka's"),
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
    yield f"The buckets of the histogram end at {bounds} seconds."


def differences_page() -> Iterator[str]:
    """What a broker answers otherwise than Kafka."""
    yield "# Where answers differ from Kafka's"
    yield ""
    yield "`make test` puts the same requests to an Ottla broker and to Apache Kafka 4.3.1, and"
    yield "compares the answers field by field, except times, ids, addresses and the wording of"
    yield "texts. This is everything that is different."
    yield ""
    yield from grid(
        ("APIs", "what is different", "because"),
        ((row.apis, row.what, row.reason) for row in KNOWN),
    )


def spark_page() -> Iterator[str]:
    """Every option of the Spark source and sink."""
    yield '# Options of `format("ottla")`'
    yield ""
    yield "They have the names of Spark's Kafka connector, in any case. What begins with `kafka.`"
    yield "and is not here is a [setting of the client](settings-client.md)."
    yield ""
    yield from grid(
        ("option", "for", "default", "what it does"),
        (
            (code(row.name), ", ".join(sorted(row.uses)), row.default, row.meaning)
            for row in OPTIONS
        ),
    )


def commands_page() -> Iterator[str]:
    """Every command with its options, ours and Kafka's."""
    yield "# The command line"
    yield ""
    yield "`ottla` has a command for everything that one does with a cluster. Kafka's tools are"
    yield "here too, under their names: [from each of them to ours](cli-from-kafka.md)."
    yield ""
    yield "Every command takes `--help`. Those that ask a cluster take these options:"
    yield ""
    leaves = [*leaf_commands(typer.main.get_command(app([])), ("ottla",))]
    common = next(
        [one for one in command.params if is_common(one)]
        for _, command in leaves
        if any(one.name == "bootstrap_server" for one in command.params)
    )
    yield from option_grid(common)
    yield ""
    yield "Where nobody says whom to ask, it is the profile in use (`ottla profile use`) or"
    yield "`OTTLA_PROFILE`, and else a broker on this machine. Exit codes are 0 when all was done,"
    yield "1 when something was not, 2 for a wrong use, 130 after Ctrl-C, 74 when the output cannot"
    yield "be written and 141 when its reader left. With `-o json` and `-o yaml` stdout carries one"
    yield "object, also when something failed, or one after the other where records stream; what"
    yield "is for people is on stderr. `NO_COLOR` turns colours off; `OTTLA_TRACEBACK=1` shows"
    yield "where an error comes from that nobody foresaw."
    yield ""
    yield "`ottla --install-completion bash` (or `zsh`, `fish`, `powershell`, `pwsh`; else it is"
    yield "the shell that runs it) lets Tab complete commands, options, and the names of topics,"
    yield "groups and profiles, for which it asks the cluster that the line names. The script alone"
    yield "is shown by `ottla --show-completion bash`."
    for words, command in leaves:
        yield from command_section(words, command)
    yield ""
    yield "## Kafka's tools"
    scripts = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"][
        "scripts"
    ]
    for name, place in sorted(scripts.items()):
        if name.startswith("kafka-"):
            script: Script = getattr(scripts_of_tools, place.partition(":")[2])
            yield from tool_section(import_module(script.module).USAGE)


# Any: Typer's own classes have no public types.
def leaf_commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands below a group, in the order in which `--help` has them."""
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from leaf_commands(found, (*words, name))
        else:
            yield (*words, name), found


def is_common(parameter: Any) -> bool:
    """Whether it is one of those that all commands have."""
    return parameter.name in ("bootstrap_server", "profile", "settings", "output") and (
        parameter.param_type_name == "option"
    )


def command_section(words: tuple[str, ...], command: Any) -> Iterator[str]:
    """One command: what it is for, its arguments, its options."""
    own = [one for one in command.params if one.name != "help" and not is_common(one)]
    arguments = [one for one in own if one.param_type_name == "argument"]
    options = [one for one in own if one.param_type_name == "option"]
    yield ""
    yield f"## `{' '.join((*words, *(argument_form(one) for one in arguments)))}`"
    yield ""
    yield from ((command.help or "").strip() or "No help.").splitlines()
    asks = any(one.name == "bootstrap_server" for one in command.params)
    output = any(one.name == "output" for one in command.params)
    told = [one for one in arguments if one.help]
    if told:
        yield ""
        yield from grid(
            ("argument", "what it is"), ((argument_form(one), one.help) for one in told)
        )
    if options:
        yield ""
        yield from option_grid(options)
    if asks or output:
        yield ""
        yield "It takes the options of all that ask a cluster." if asks else "It takes `-o`."


def argument_form(argument: Any) -> str:
    """An argument as it stands in a use."""
    return str(argument.metavar or argument.name.upper())


def option_grid(options: Iterable[Any]) -> Iterator[str]:
    """Options with what they do."""
    yield from grid(
        ("option", "default", "what it does"),
        ((option_form(one), option_default(one), (one.help or "").strip()) for one in options),
    )


def option_form(option: Any) -> str:
    """The names of an option, with the form of its value."""
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    choices = getattr(option.type, "choices", None)
    value = option.metavar or ("|".join(map(str, choices)) if choices else option.type.name.upper())
    return f"{names} {value}"


def option_default(option: Any) -> str:
    """What holds without it."""
    if option.is_flag or option.default is None:
        return "required" if option.required else ""
    return code(str(getattr(option.default, "value", option.default)))


def tool_section(usage: Usage) -> Iterator[str]:
    """One of Kafka's tools, from its table."""
    yield ""
    yield f"### `{usage.tool}`"
    yield ""
    yield usage.purpose
    yield ""
    yield from grid(
        ("flag", "what it does"),
        (
            (
                code(str(flag)) + (f" {flag.takes}" if flag.takes else ""),
                flag.help if flag.done else f"{flag.help} Not done here yet.".strip(),
            )
            for flag in sorted(usage.by_name.values(), key=lambda one: one.name)
        ),
    )


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
    ("../cli.md", commands_page),
)


def render(page: Callable[[], Iterator[str]]) -> str:
    """The text of a page, as it stands in its file."""
    return "\n".join((HEADER, "", *page(), ""))


def stale(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Pages whose file differs from the tables, each with the lines of the difference."""
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
            yield path.name, ["no table makes this page any more; delete it"]


def check(folder: Path) -> int:
    """Names the stale pages; 1 when there are any."""
    found = 0
    for name, lines in stale(folder):
        found = 1
        print(f"{name} is stale; run `make docs`")
        for line in lines[:DIFF_LINES_MAX]:
            print(f"  {line[:160]}")
        if len(lines) > DIFF_LINES_MAX:
            print(f"  and {len(lines) - DIFF_LINES_MAX} lines more")
    return found


def write(folder: Path) -> int:
    """Writes every page."""
    for name, page in PAGES:
        (folder / name).write_text(render(page), encoding="utf-8")
    return 0


def main(arguments: list[str]) -> int:
    """Runs the script."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    return check(FOLDER) if arguments else write(FOLDER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
