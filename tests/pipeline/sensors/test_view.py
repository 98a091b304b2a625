"""What is shown, without anything that runs."""

import io
import sys
from pathlib import Path

from rich.console import Console
from sensors.__main__ import how_to_go_on
from sensors.progress import Progress
from sensors.show import Screen
from sensors.view import Sight, line, picture, summary


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
