"""The show: feeds the topics, starts the queries once Spark is up, and shows it all to the end.

Invariant: the first query has written something, or had its time, before the others start: each
starts several processes, and with all at once the first results take as long as the last. What has
ended although it should not have is told as Failed.
"""

import os
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from py4j.protocol import Py4JError
from rich.console import Console
from rich.live import Live

from ottla.errors import OttlaError
from ottla.sync import Admin
from sensors import topics, view
from sensors.dev_broker import DevBroker
from sensors.failure import Failed
from sensors.feed import Feed
from sensors.findings import Alerts, last_ms, written
from sensors.local_spark import LocalSpark, first_line
from sensors.view import Sight
from sensors.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

BACKLOG_MS: Final = 30_000
"""What the devices have kept for the first start, so that there is something to see at once."""

CATCH_UP_S: Final = 180.0
"""So long the queries may take at the end for what was sent before: on a busy machine, minutes."""

NO_TIME: Final = "Python worker failed to connect back"
"""What Spark says when a Python process takes longer than ten seconds to start: a busy machine."""

RESTARTS_MAX: Final = 5

FIRST_RESULTS_S: Final = 90.0
LOOK_S: Final = 0.5
LOOK_MAX_MS: Final = 5000
"""So long a look may take, and Ctrl-C and the end of the broker go unseen meanwhile."""

SEEN_S: Final = 60.0
"""So long looks may fail, on a machine that is busy, when the broker has not ended."""

WIDTH: Final = 100
PLAIN: Final[Mapping[str, Any]] = {"highlight": False, "markup": False, "emoji": False}
"""Names of devices and folders are shown as they are, brackets and all."""

LINE_S: Final = 10.0


class Show:
    """What there is to see of a broker and of Spark, which begin meanwhile."""

    def __init__(
        self,
        terminal: TextIO,
        broker: DevBroker,
        spark: LocalSpark,
        data: Path,
        asked: threading.Event,
    ) -> None:
        self._screen = Screen(Console(file=terminal, **PLAIN))
        self._broker = broker
        self._spark = spark
        self._data = data
        self._folder = data / "sensors"
        self._asked = asked
        self._wanted: dict[str, Callable[[], StreamingQuery]] = {}
        self._queries: dict[str, StreamingQuery] = {}
        self._restarts: dict[str, int] = {}
        self._seen_s = 0.0

    @property
    def is_live(self) -> bool:
        """Whether somebody looks."""
        return self._screen.console.is_terminal

    def run(self, seed: int, seconds: float | None) -> None:
        """Start everything, look at it until it is time to stop, end everything."""
        try:
            self._run(seed, seconds)
        except OttlaError:
            self._check_broker()
            raise
        if not self._asked.is_set() and not self._screen.sight.averages:
            log = self._folder / "spark.log"
            raise Failed(f"no averages were written in time; {log} may say why")

    def _run(self, seed: int, seconds: float | None) -> None:
        with ExitStack() as ending:
            ending.enter_context(self._screen)
            self._screen.show("starting a broker")
            servers = self._broker.listening()
            admin = ending.enter_context(Admin({"bootstrap.servers": servers}))
            topics.create(admin)
            alerts = ending.enter_context(Alerts(servers, topics.ALERTS))
            brief = {"bootstrap.servers": servers, "default.api.timeout.ms": LOOK_MAX_MS}
            looking = ending.enter_context(Admin(brief))
            before = written(admin)
            watch = Watch(servers, looking, alerts, self._folder, self._data, before)
            watch.queries = self._queries
            backlog_ms = time.time_ns() // 1_000_000 - BACKLOG_MS
            since_ms = max((last_ms(admin, topics.READINGS) or 0) + 1, backlog_ms)
            feed = ending.enter_context(
                Feed(servers, seed, since_ms, lambda: self._broker.failure is None)
            )
            self._seen_s = time.monotonic()
            try:
                self._look(watch, feed, servers, seconds)
            except (Py4JError, ConnectionError) as error:
                if not self._asked.is_set():  # it may have got the signal, too
                    raise Failed(f"Spark has ended: {first_line(error)}") from None

    def _look(self, watch: Watch, feed: Feed, servers: str, seconds: float | None) -> None:
        screen, asked = self._screen, self._asked
        screen.show("starting Spark", self._seen(watch))
        import pandas  # noqa: F401  # pyright: ignore[reportUnusedImport]  (the job needs it soon)

        while self._is_well(feed) and not self._spark.wait(LOOK_S):
            screen.show("starting Spark", self._seen(watch))
        if asked.is_set():
            return
        spark = self._spark.session()
        screen.show("starting the queries", self._seen(watch))
        from sensors import job  # not before: Spark's thread imports parts of PySpark, too

        folder = str(self._folder)
        self._wanted = job.queries(spark, servers, folder, processingTime="1 second")
        self._restarts = dict.fromkeys(self._wanted, RESTARTS_MAX)
        first, *others = self._wanted
        self._queries[first] = self._wanted[first]()
        until_s = time.monotonic() + FIRST_RESULTS_S
        while self._is_well(feed) and not screen.sight.averages and time.monotonic() < until_s:
            screen.show("starting the queries", self._seen(watch))
            asked.wait(LOOK_S)
        screen.show("running", self._seen(watch))
        for name in others:
            if not asked.is_set():
                self._queries[name] = self._wanted[name]()
        while self._is_well(feed) and not (seconds and screen.sight.elapsed_s >= seconds):
            screen.show("running", self._seen(watch))
            asked.wait(LOOK_S)
        feed.stop()
        until_s = time.monotonic() + CATCH_UP_S
        screen.show("catching up", self._seen(watch))
        while self._is_well(feed) and screen.sight.lag != 0 and time.monotonic() < until_s:
            asked.wait(LOOK_S)
            screen.show("catching up", self._seen(watch))
        for query in self._queries.values():
            query.stop()
        screen.show("ended", self._seen(watch))

    def _seen(self, watch: Watch) -> Sight | None:
        """How things are; None, and nothing new to show, while the broker is too busy to tell."""
        try:
            sight = watch.look()
        except OttlaError:
            self._check_broker()
            if time.monotonic() < self._seen_s + SEEN_S:
                return None
            raise
        self._seen_s = time.monotonic()
        return sight

    def _check_broker(self) -> None:
        failure = self._broker.failure
        if failure is not None:
            raise Failed(failure)

    def _is_well(self, feed: Feed) -> bool:
        """Whether it goes on; Failed when something has ended that should not have."""
        if self._asked.is_set():
            return False
        self._check_broker()
        if feed.failure is not None:
            raise Failed(str(feed.failure))
        for name, query in [*self._queries.items()]:
            failure = query.exception()
            if failure is None:
                continue
            if NO_TIME not in str(failure):
                raise Failed(f"query {name}: {str(failure).strip().splitlines()[0]}")
            if not self._restarts[name]:
                raise Failed(f"{NO_TIME} in time: the machine is too busy; start it again")
            self._restarts[name] -= 1
            self._queries[name] = self._wanted[name]()  # from its checkpoint
        return True

    def end(self, picture: Path | None) -> None:
        """Say what is left where, and keep what was seen as a picture."""
        self._screen.end()
        if picture is not None:
            self._screen.save(picture)


class Screen:
    """Shows what there is to see, on a terminal or line by line."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.sight = Sight()
        self._live = Live(
            # Else what PySpark's threads write to stderr would be shown, and not be in its file.
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._line_s = -LINE_S
        self._stage = ""

    def __enter__(self) -> None:
        if self.console.is_terminal:
            self._live.start()

    def __exit__(self, *exception: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def show(self, stage: str, sight: Sight | None = None) -> None:
        """Show how things are."""
        self.sight = replace(sight or self.sight, stage=stage)
        if self.console.is_terminal:
            self._live.update(view.picture(self.sight), refresh=True)
        elif stage != self._stage or self.sight.elapsed_s >= self._line_s + LINE_S:
            self._stage, self._line_s = stage, self.sight.elapsed_s
            self.console.print(view.line(self.sight), soft_wrap=True)

    def end(self) -> None:
        """Say what is left where, if there is anything."""
        if self.sight.places:
            self.console.print(view.summary(self.sight), soft_wrap=True)

    def save(self, picture: Path) -> None:
        """Keep what was seen as a picture."""
        with open(os.devnull, "w") as nowhere:
            paper = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, **PLAIN)
            paper.print(view.picture(replace(self.sight, stage="running")))
            paper.save_svg(str(picture), title="make run")
