"""What is shown, without Spark."""

import io
import json
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from sensors.__main__ import how_to_go_on, why_unwritten
from sensors.findings import Alerts
from sensors.progress import Progress
from sensors.show import PLAIN, Screen, Show
from sensors.topics import ALERTS
from sensors.view import Sight, line, picture, summary

from ottla.sync import Producer
from ottla.testing import ClusterThread


def shown(sight: Sight) -> str:
    paper = Console(file=io.StringIO(), width=100)
    with paper.capture() as caught:
        paper.print(picture(sight))
    return caught.get()


def test_the_lag_is_not_told_before_each_query_has_told_where_it_is() -> None:
    told = Progress("averages", 0, done=900)
    for queries in ([], [Progress("averages")], [told, Progress("alerts")]):
        sight = Sight(in_topic=1_000, queries=queries)
        assert sight.lag is None
        assert line(sight).endswith("lag …")
        assert "lag               … readings" in summary(sight)
    sight = Sight(in_topic=2_000, queries=[told, Progress("alerts", 0, done=2_000)])
    assert sight.lag == 1_100
    assert line(sight).endswith("lag 1,100")


def test_a_query_without_a_micro_batch_has_no_lag_in_the_table() -> None:
    queries = [Progress("averages", 0, done=900), Progress("alerts")]
    rows = shown(Sight(in_topic=1_000, queries=queries)).splitlines()
    (averages,) = [row for row in rows if row.startswith("averages ")]
    (alerts,) = [row for row in rows if row.startswith("alerts ")]
    assert averages.split()[-1] == "100"
    assert alerts.split() == ["alerts", "…", "…"]


def test_what_is_to_be_typed_at_the_end_is_quoted_for_a_shell() -> None:
    plain = how_to_go_on([], Path(".ottla"))
    assert plain == "`make run` goes on from here; `rm -r .ottla` begins anew."
    spaced = how_to_go_on(["--data", "kept for later"], Path("kept for later"))
    assert "`rm -r 'kept for later'` begins" in spaced


def test_what_threads_write_to_stderr_is_not_shown_on_the_terminal() -> None:
    terminal = io.StringIO()
    screen = Screen(Console(file=terminal, force_terminal=True, width=100))
    before = sys.stdout, sys.stderr
    with screen:
        assert (sys.stdout, sys.stderr) == before
        screen.show("running", Sight())
        print("Traceback of a server", file=sys.stderr)
        screen.show("running", Sight())
    assert "Ottla sensors" in terminal.getvalue()
    assert "Traceback" not in terminal.getvalue()


ALERT = {
    "device": "x[/hall]",
    "at": "2026-01-01T10:20:30.000Z",
    "signal": "temperature",
    "value": 90.5,
    "mean": 20.0,
    "deviation": 1,
}


def test_names_and_folders_are_shown_as_they_are(tmp_path: Path) -> None:
    """Brackets are markup to who draws, and would be left out, or be an error."""
    then = datetime(2026, 1, 1, tzinfo=UTC)
    average = {"device": "y[/bold]", "start": then, "end": then, "readings": 1}
    sight = Sight(
        places={"topics": "/tmp/[test]/[/x]"},
        latest_averages=[{**average, "temperature": 1.0, "vibration": 2.0}],
        latest_alerts=[ALERT],
    )
    for is_terminal in (True, False):
        terminal = io.StringIO()
        screen = Screen(Console(file=terminal, force_terminal=is_terminal, width=100, **PLAIN))
        with screen:
            screen.show("running", sight)
        screen.end()
        assert "/tmp/[test]/[/x]" in terminal.getvalue()
        if is_terminal:
            assert "x[/hall]" in terminal.getvalue()
            assert "y[/bold]" in terminal.getvalue()
    screen.save(tmp_path / "picture.svg")
    assert "x[/hall]" in (tmp_path / "picture.svg").read_text()


def test_what_is_no_alert_is_left_out_of_them() -> None:
    others = [b"no JSON", b"[1]", b"{}", b"\xff", b"[" * 100_000, None]
    others += [json.dumps({**ALERT, name: None}).encode() for name in ALERT]
    others += [json.dumps({**ALERT, "value": 10**400}).encode()]  # no float holds it
    others += [json.dumps({**ALERT, "device": "\ud800"}).encode()]  # half of a character
    with ClusterThread(settings={"num.partitions": 1}) as cluster:
        servers = cluster.bootstrap_servers
        with Producer({"bootstrap.servers": servers}) as producer:
            producer.send(ALERTS, b"old").result()
            with Alerts(servers, ALERTS) as alerts:
                while len(alerts.latest) < 2:  # all others are between two, wherever it begins
                    for value in (*others, json.dumps(ALERT).encode()):
                        producer.send(ALERTS, value).result()
                    alerts.look()
    assert all(one == ALERT for one in alerts.latest)
    assert "x[/hall]" in shown(Sight(latest_alerts=alerts.latest))


def test_a_picture_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    nothing: Any = None  # no broker and no Spark run
    show = Show(io.StringIO(), nothing, nothing, tmp_path, threading.Event())
    assert why_unwritten(show.end, None) is None
    assert why_unwritten(show.end, tmp_path / "picture.svg") is None
    told = why_unwritten(show.end, tmp_path / "not there" / "picture.svg")
    assert told is not None
    assert told.startswith("what was seen could not be written: ")
    assert "not there/picture.svg" in told
    assert "\n" not in told
