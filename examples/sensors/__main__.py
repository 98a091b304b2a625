"""All of it on one machine: a broker, the devices, the job on Spark, and a view of what happens.

Invariant: what was started is ended, in the opposite order, however it ends: by Ctrl-C, by its time
or by a failure. It exits with 0 when all went well, and else says the reason and exits with 1. A
second start goes on where the first one ended.
"""

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.live import Live

from ottla.errors import OttlaError
from ottla.pipeline.home import quick_home
from ottla.pipeline.java import NoJava, check_java
from ottla.sync import Admin
from sensors import job, topics, view
from sensors.dev_broker import BrokerFailed, DevBroker, ottla
from sensors.feed import Feed
from sensors.findings import Alerts, last_ms
from sensors.view import Sight
from sensors.watch import Watch

UNATTENDED_S: Final = 60.0
"""So long it runs where nobody looks."""

BACKLOG_MS: Final = 30_000
"""What the devices have kept for the first start, so that there is something to see at once."""

CATCH_UP_S: Final = 180.0
"""So long the queries may take at the end for what was sent before: on a busy machine, minutes."""

NO_TIME: Final = "Python worker failed to connect back"
"""What Spark says when a Python process takes longer than ten seconds to start: a busy machine."""

RESTARTS_MAX: Final = 5

FIRST_RESULTS_S: Final = 30.0
LOOK_S: Final = 0.5
WIDTH: Final = 100
LINE_S: Final = 10.0
SEED: Final = 7


class Failed(Exception):
    """It cannot go on; the text says why."""


def main() -> int:
    """Run as the command line says; the exit code."""
    given = arguments().parse_args()
    # What Spark says goes to a file, and this stays with the terminal.
    screen = Screen(Console(file=os.fdopen(os.dup(1), "w"), highlight=False))
    seconds: float | None = given.seconds
    if seconds is None and not screen.console.is_terminal:
        seconds = UNATTENDED_S
    try:
        check_java()
    except NoJava as error:
        print(f"{error}. The broker alone needs none: {ottla()} dev", file=sys.stderr)
        return 1
    reason = None
    with heeded() as asked:
        try:
            run(given, screen, seconds, asked)
        except (Failed, BrokerFailed, OttlaError, OSError) as error:
            reason = str(error)
        except Py4JError as error:  # Spark has ended: it may have got the signal, too
            reason = None if asked.is_set() else f"Spark has ended: {error}"
    screen.end()
    if given.picture is not None:
        screen.save(given.picture)
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    again = shlex.join(sys.argv[1:])
    command = f"make run ARGS={shlex.quote(again)}" if again else "make run"
    end = f"`{command}` goes on from here; `rm -r {given.data}` begins anew."
    screen.console.print(end, soft_wrap=True)
    return 0


def arguments() -> argparse.ArgumentParser:
    """What can be said on the command line."""
    parser = argparse.ArgumentParser(
        prog="sensors", description="Devices, a broker and a pipeline on Spark, on this machine."
    )
    parser.add_argument(
        "--port", type=_port, default=9092, help="where the broker listens (9092; 0: any)"
    )
    parser.add_argument("--data", type=Path, default=".ottla", help="where all is kept (.ottla)")
    parser.add_argument("--master", default="local[*]", help="where Spark runs (local[*])")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the devices ({SEED})")
    parser.add_argument("--picture", type=Path, help="an SVG of the view as it was last")
    parser.add_argument(
        "--seconds", type=_seconds, help=f"end after so long ({UNATTENDED_S:g} without a terminal)"
    )
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: seconds, more than 0")
    return found


def run(
    given: argparse.Namespace, screen: "Screen", seconds: float | None, asked: threading.Event
) -> None:
    """Start everything, look at it until it is time to stop, end everything."""
    data = given.data.absolute()
    folder = data / "sensors"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ending:
        ending.enter_context(screen)
        screen.show("starting a broker")
        broker = ending.enter_context(DevBroker(given.port, data, folder / "broker.log"))
        servers = broker.address
        admin = ending.enter_context(Admin({"bootstrap.servers": servers}))
        topics.create(admin)
        alerts = ending.enter_context(Alerts(servers, topics.ALERTS))
        watch = Watch(servers, admin, alerts, folder, data)
        backlog_ms = time.time_ns() // 1_000_000 - BACKLOG_MS
        since_ms = max((last_ms(admin, topics.READINGS) or 0) + 1, backlog_ms)
        feed = ending.enter_context(Feed(servers, given.seed, since_ms))

        screen.show("starting Spark", watch.look())
        spark = ending.enter_context(session(given.master, folder / "spark.log"))
        if asked.is_set():
            return
        screen.show("starting the queries", watch.look())
        wanted = job.queries(spark, servers, str(folder), processingTime="1 second")
        queries: dict[str, StreamingQuery] = {}
        watch.queries = queries
        restarts = dict.fromkeys(wanted, RESTARTS_MAX)

        def is_well() -> bool:
            """Whether it goes on; Failed when something has ended that should not have."""
            for failure in (broker.failure, feed.failure):
                if failure is not None:
                    raise Failed(str(failure))
            for name, query in [*queries.items()]:
                failure = query.exception()
                if failure is None:
                    continue
                if NO_TIME not in str(failure):
                    raise Failed(f"query {name}: {str(failure).strip().splitlines()[0]}")
                if not restarts[name]:
                    raise Failed(f"{NO_TIME} in time: the machine is too busy; start it again")
                restarts[name] -= 1
                queries[name] = wanted[name]()  # from its checkpoint
            return not asked.is_set()

        # Each starts several Python processes: with all at once the first results take as long as
        # the last, so that the others wait until the first has written something.
        first, *others = wanted
        queries[first] = wanted[first]()
        until_s = time.monotonic() + FIRST_RESULTS_S
        while is_well() and not screen.sight.averages and time.monotonic() < until_s:
            screen.show("starting the queries", watch.look())
            asked.wait(LOOK_S)
        queries |= {name: wanted[name]() for name in others if not asked.is_set()}
        while is_well() and not (seconds and screen.sight.elapsed_s >= seconds):
            screen.show("running", watch.look())
            asked.wait(LOOK_S)
        feed.stop()
        until_s = time.monotonic() + CATCH_UP_S
        while is_well() and screen.sight.lag and time.monotonic() < until_s:
            screen.show("catching up", watch.look())
            asked.wait(LOOK_S)
        for query in queries.values():
            query.stop()
        screen.show("ended", watch.look())
    if not asked.is_set() and not screen.sight.averages:
        raise Failed(f"no averages were written in time; {folder / 'spark.log'} may say why")


class Screen:
    """Shows what there is to see, on a terminal or line by line."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.sight = Sight()
        self._live = Live(console=console, auto_refresh=False)
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
            paper = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
            paper.print(view.picture(replace(self.sight, stage="running")))
            paper.save_svg(str(picture), title="make run")


@contextmanager
def heeded() -> Generator[threading.Event]:
    """An event that is set by the first signal that asks to stop; the second one ends at once."""
    asked = threading.Event()

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(number, signal.default_int_handler)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[signal.Signals, Any] = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def session(master: str, log: Path) -> Generator[SparkSession]:
    """Spark, which listens on this machine alone.

    What it says goes to a file, until it has ended: the driver's side of it complains on stderr
    when the other side is gone first.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_HOME", str(quick_home(log.parent / "spark")))
    heeding = signal.getsignal(signal.SIGINT)
    with redirected(log):
        spark = job.session(
            **{
                "spark.master": master,
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                # Up in half the time, on machines with few cores; what is compiled here is little.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            }
        )
        signal.signal(signal.SIGINT, heeding)  # Spark has put its own there
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def redirected(log: Path) -> Generator[None]:
    """Let this process and those that it starts meanwhile write to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)


if __name__ == "__main__":
    sys.exit(main())
