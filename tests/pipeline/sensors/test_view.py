"""The view of the example, with snapshots that need no broker and no Spark."""

import io
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from ottla.sync import Producer
from ottla.testing import ClusterThread
from sensors.description import load_example
from shared.example import Topic
from shared.monitor import OutputState, QueryProgress, Snapshot, TopicTail, parse_row
from shared.view import VERBATIM, Screen, render, status_line, summary

EXAMPLE = load_example()
SINCE = datetime(2026, 1, 1, 10, 20, 30, tzinfo=UTC)
PATHS = {"averages": "/data/averages", "topics": "/tmp/[test]/[/x]"}


def rendered(snapshot: Snapshot) -> str:
    console = Console(file=io.StringIO(), width=100, **VERBATIM)
    with console.capture() as captured:
        console.print(render(EXAMPLE, snapshot))
    return captured.get()


def test_lag_is_unknown_until_every_query_has_progress() -> None:
    averages = QueryProgress("averages", 0, records_read=900)
    for queries in ([], [QueryProgress("averages")], [averages, QueryProgress("alerts")]):
        snapshot = Snapshot(input_total=1_000, progress=queries, paths=PATHS)
        assert snapshot.lag is None
        assert status_line(EXAMPLE, snapshot).endswith("lag …")
        assert re.search(r"^  lag +… readings$", summary(EXAMPLE, snapshot), re.MULTILINE)
    queries = [averages, QueryProgress("alerts", 0, records_read=2_000)]
    snapshot = Snapshot(input_total=2_000, progress=queries)
    assert snapshot.lag == 1_100
    assert status_line(EXAMPLE, snapshot).endswith("lag 1,100")


def test_query_without_a_micro_batch_has_no_lag() -> None:
    queries = [QueryProgress("averages", 0, records_read=900), QueryProgress("alerts")]
    lines = rendered(Snapshot(input_total=1_000, progress=queries)).splitlines()
    (averages,) = [line for line in lines if line.startswith("averages ")]
    (alerts,) = [line for line in lines if line.startswith("alerts ")]
    assert averages.split()[-1] == "100"
    assert alerts.split() == ["alerts", "…"]


def test_summary_has_counts_and_paths() -> None:
    outputs = {"averages": OutputState(1_200, 5_000), "dead letters": OutputState(3, 40)}
    snapshot = Snapshot(
        since=SINCE, input_count=30_000, input_total=95_000, outputs=outputs, paths=PATHS
    )
    assert summary(EXAMPLE, snapshot).splitlines() == [
        "  since 10:20:30 UTC    this run    all runs",
        "  readings                30,000      95,000  topic sensors.readings",
        "  averages                 1,200       5,000  /data/averages",
        "  alerts                       0           0  topic sensors.alerts",
        "  dead letters                 3          40  topic sensors.dead-letters",
        "  lag                          … readings",
        "  topics              /tmp/[test]/[/x]",
    ]


def test_live_counts_say_since_when() -> None:
    lines = rendered(Snapshot(since=SINCE, input_count=30_000, input_per_s=998)).splitlines()
    (counts,) = [line for line in lines if "30,000 readings (998/s)" in line]
    assert counts.startswith("since 10:20:30 UTC ")


def test_lines_are_printed_for_new_stages_and_every_10_s() -> None:
    output = io.StringIO()
    screen = Screen(EXAMPLE, output)
    with screen:
        for elapsed_s in (0, 5, 9.9, 10.1, 15, 20.2):
            screen.show(Snapshot("running", elapsed_s=elapsed_s))
        screen.show_stage("stopped")
    assert [line.split(":")[0].split() for line in output.getvalue().splitlines()] == [
        ["0", "s", "running"],
        ["10", "s", "running"],
        ["20", "s", "running"],
        ["20", "s", "stopped"],
    ]


def test_stderr_of_threads_is_not_on_the_terminal() -> None:
    terminal = io.StringIO()
    screen = Screen(EXAMPLE, terminal, force_terminal=True, width=100)
    before = sys.stdout, sys.stderr
    with screen:
        assert (sys.stdout, sys.stderr) == before
        screen.show(Snapshot("running"))
        print("Traceback of a server", file=sys.stderr)
        screen.show(Snapshot("running"))
    assert "Ottla sensors" in terminal.getvalue()
    assert "Traceback" not in terminal.getvalue()


ALERT: dict[str, Any] = {
    "device": "x[/hall]",
    "at": "2026-01-01T10:20:30.000Z",
    "signal": "temperature",
    "value": 90.5,
    "mean": 20.0,
    "deviation": 1,
}


def test_brackets_in_names_and_paths_are_not_markup(tmp_path: Path) -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    average = {"device": "y[/bold]", "start": then, "end": then, "readings": 1}
    average |= {"temperature": 1.0, "vibration": 2.0}
    outputs = {"averages": OutputState(1, 1, [average]), "alerts": OutputState(1, 1, [ALERT])}
    snapshot = Snapshot("running", "127.0.0.1:9092", outputs=outputs, paths=PATHS)
    for is_terminal in (True, False):
        terminal = io.StringIO()
        screen = Screen(EXAMPLE, terminal, force_terminal=is_terminal, width=100)
        with screen:
            screen.show(snapshot)
        screen.show_summary()
        assert "/tmp/[test]/[/x]" in terminal.getvalue()
        if is_terminal:
            assert "x[/hall]" in terminal.getvalue()
            assert "y[/bold]" in terminal.getvalue()
    screen.save_picture(tmp_path / "picture.svg")
    assert "x[/hall]" in (tmp_path / "picture.svg").read_text()


def test_panel_of_averages_has_the_hottest_devices() -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"device": f"d{n}", "start": then, "end": then, "readings": 1, "temperature": float(n)}
        | {"vibration": 1.0}
        for n in range(8)
    ]
    lines = rendered(Snapshot(outputs={"averages": OutputState(8, 8, rows)})).splitlines()
    shown = [line.split()[1] for line in lines if line.startswith("│ d") and "°C" in line]
    assert shown == ["d7", "d6", "d5", "d4", "d3", "d2"]
    assert any("the 6 hottest of 8 devices" in line for line in lines)


def alerts_topic() -> Topic:
    (topic,) = [one for one in EXAMPLE.counted_topics if one.label == "alerts"]
    return topic


def test_records_that_are_not_alerts_are_ignored() -> None:
    columns = alerts_topic().columns
    assert columns is not None
    others = [b"no JSON", b"[1]", b"{}", b"\xff", b"[" * 100_000, b""]
    others += [json.dumps({**ALERT, name: None}).encode() for name in ALERT]
    others += [json.dumps({**ALERT, "value": True}).encode()]
    others += [json.dumps({**ALERT, "value": 10**400}).encode()]  # too large for a float
    others += [json.dumps({**ALERT, "device": "\ud800"}).encode()]  # half of a surrogate pair
    assert [value for value in others if parse_row(value, columns) is not None] == []
    assert parse_row(json.dumps(ALERT).encode(), columns) == ALERT


def test_tail_has_only_new_records() -> None:
    with ClusterThread(settings={"num.partitions": 1}) as cluster:
        servers, topic = cluster.bootstrap_servers, alerts_topic()
        with Producer({"bootstrap.servers": servers}) as producer:
            old = {**ALERT, "device": "old"}
            producer.send(topic.name, json.dumps(old).encode()).result()
            with TopicTail(servers, topic) as tail:
                while not tail.poll():  # the consumer has to find its position first
                    for value in (b"{}", json.dumps(ALERT).encode()):
                        producer.send(topic.name, value).result()
                assert all(row == ALERT for row in tail.poll())
