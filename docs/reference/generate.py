"""Writes the pages of docs/reference/ from Ottla's tables, or says which of them are stale.

Invariant: a page holds nothing that is not in a table, so writing twice changes nothing. A new
page is one more entry in PAGES.

    python docs/reference/generate.py            write the pages
    python docs/reference/generate.py --check    write nothing; fail and name the stale pages
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

from ottla.broker.dispatch import served
from ottla.errors import ErrorCode
from ottla.metrics import LATENCY_SECONDS, METRICS
from ottla.pipeline.options import TABLE as OPTIONS
from ottla.protocol.apis import API_OF_KEY, Use
from ottla.protocol.schema import Versions
from ottla.settings import connection
from ottla.settings.admin import ADMIN
from ottla.settings.broker import BROKER
from ottla.settings.consumer import CONSUMER
from ottla.settings.producer import PRODUCER
from ottla.settings.table import Required, Setting, Table
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


def not_supported_section(table: Table) -> Iterator[str]:
    """One scope's part of that page."""
    yield ""
    yield f"## {table.scope.capitalize()}"
    yield ""
    yield from grid(
        ("without effect", "because"),
        ((code(row.name), row.reason) for row in sorted(table.without_effect)),
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
            for row in sorted(table.refused)
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
