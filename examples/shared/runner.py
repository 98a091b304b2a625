"""Runs an example: starts everything, shows it until it is time to stop, and stops everything.

Spark takes the longest to start. So it starts first, in a thread, and the modules that the rest
needs are imported meanwhile.

Invariant: everything that was started is stopped in the opposite order, whether Ctrl-C, `--seconds`
or a failure ends the run. The exit code is 0, or 1 after a failure with its reason on stderr. If
Ctrl-C comes before anything was started, it is 130.
"""

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import OttlaError
from ottla.pipeline.java import NoJava, check_java
from ottla.pipeline.local_spark import LocalSpark, error_summary
from shared.dev_broker import DevBroker, ottla_command

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from shared.example import Example, Start
    from shared.feed import Feed
    from shared.monitor import Monitor
    from shared.view import Screen

PORT_HINT: Final = "ottla dev --port"
"""The broker's error if the port is taken has it."""

SEED: Final = 7
UNATTENDED_S: Final = 60.0
"""The default of --seconds without a terminal."""

CATCH_UP_S: Final = 180.0
"""At the end the queries have so long to read the rest, which takes minutes on a busy machine."""

FIRST_RESULTS_S: Final = 90.0
"""After so long the other queries start, even if the first one has not written anything."""

POLL_S: Final = 0.5
POLL_FAILURES_S: Final = 60.0
"""Polls may time out for so long on a busy machine, while the broker runs."""

WORKER_TIMEOUT: Final = "Python worker failed to connect back"
"""Spark's error if a Python process takes longer than 10 s to start, as on a busy machine."""

RESTARTS_MAX: Final = 5
"""A query is restarted so many times after that error."""


class RunFailed(OttlaError):
    """The example cannot continue; the text has the reason."""


def main(name: str, load_example: "Callable[[], Example]", command: str = "make run") -> int:
    """Run an example as the command line says, and return the exit code.

    `load_example` is called while Spark starts, so it is the place for imports that take long.
    """
    arguments = argument_parser(name).parse_args()
    try:
        check_java()
    except NoJava as error:
        print(f"{error}. To run only the broker: {ottla_command()} dev", file=sys.stderr)
        return 1
    # LocalSpark redirects the output of this process to a file, so keep the terminal.
    terminal = os.fdopen(os.dup(1), "w")
    screen: Screen | None = None
    failure: str | None = None
    with stop_on_signals() as stop:
        try:
            data: Path = arguments.data.absolute()
            directory = data / name
            directory.mkdir(parents=True, exist_ok=True)
            broker = DevBroker(arguments.port, data, directory / "broker.log")
            spark = LocalSpark(name, directory / "spark.log", master=arguments.master)
            with broker, spark:
                import shared.view

                example = load_example()
                screen = shared.view.Screen(example, terminal)
                seconds = arguments.seconds or (None if screen.is_live else UNATTENDED_S)
                Run(example, screen, broker, spark, data, stop).run(arguments.seed, seconds)
                # Once every query has worked, Java has loaded the classes that they need.
                if screen.snapshot.lag is not None and spark.save_classes():
                    screen.print("Saving Spark's classes for faster starts; Ctrl-C skips this.")
        except (OttlaError, OSError) as error:
            failure = str(error)
        except KeyboardInterrupt:
            failure = "stopped at once; the next start continues from the last checkpoint"
    if screen is not None:
        not_written = report(screen, arguments.picture)
        failure = failure or not_written
    if failure is not None:
        hint = f". With this example: {command} ARGS='--port N'" if PORT_HINT in failure else ""
        print(failure + hint, file=sys.stderr)
        return 1
    print(next_commands(command, sys.argv[1:], arguments.data), file=terminal, flush=True)
    return 0


def argument_parser(name: str) -> argparse.ArgumentParser:
    """The options of every example."""
    parser = argparse.ArgumentParser(
        prog=name, description="Run a broker, generated input and a job on Spark on this machine."
    )
    parser.add_argument(
        "--port", type=_port, default=9092, help="Port of the broker; 0 takes a free one (9092)"
    )
    parser.add_argument(
        "--data", type=Path, default=".ottla", help="Directory for all data (.ottla)"
    )
    parser.add_argument("--master", default="local[*]", help="Master URL of Spark (local[*])")
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"Seed of the generated input ({SEED})"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        help=f"Stop after so many seconds (without a terminal: {UNATTENDED_S:g}, else at Ctrl-C)",
    )
    parser.add_argument("--picture", type=Path, help="Write the last view as an SVG image")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0")
    return seconds


def report(screen: "Screen", picture: Path | None) -> str | None:
    """Print the summary and write the picture; return the reason if that failed."""
    try:
        screen.show_summary()
        if picture is not None:
            screen.save_picture(picture)
    except OSError as error:
        return f"the summary or the picture could not be written: {error}"
    return None


def next_commands(command: str, arguments: list[str], data: Path) -> str:
    """The commands for the next time, quoted for a shell."""
    again = f"{command} ARGS={shlex.quote(shlex.join(arguments))}" if arguments else command
    return f"`{again}` continues from here. `rm -r {shlex.quote(str(data))}` deletes the data."


@contextmanager
def stop_on_signals() -> Generator[threading.Event]:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets; the second raises."""
    stop = threading.Event()

    def request_stop(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[signal.Signals, Any] = {
        number: signal.signal(number, request_stop) for number in numbers
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # After a request to stop, only the summary is left, which takes no time.
            signal.signal(number, signal.SIG_IGN if stop.is_set() else handler)


class Run:
    """One run of an example, on a broker and a Spark that are starting."""

    def __init__(
        self,
        example: "Example",
        screen: "Screen",
        broker: DevBroker,
        spark: LocalSpark,
        data: Path,
        stop: threading.Event,
    ) -> None:
        self._example = example
        self._screen = screen
        self._broker = broker
        self._spark = spark
        self._data = data
        self._directory = data / example.name
        self._stop = stop
        self._queries = RestartedQueries({})
        self._polled_s = 0.0

    def run(self, seed: int, seconds: float | None) -> None:
        """Run for so long, or until the stop event is set; raise an OttlaError after a failure."""
        from py4j.protocol import Py4JError

        try:
            with self._screen, ExitStack() as resources:
                self._start_and_show(resources, seed, seconds)
        except (Py4JError, ConnectionError) as error:
            if not self._stop.is_set():  # Java may have got the signal, too
                raise RunFailed(f"Spark has ended: {error_summary(error)}") from None
        except OttlaError:
            self._broker.check()
            raise
        if not self._stop.is_set() and not self._has_results():
            log = self._directory / "spark.log"
            raise RunFailed(f"no {self._example.outputs[0].label} were written; see {log}")

    def _start_and_show(self, resources: ExitStack, seed: int, seconds: float | None) -> None:
        from ottla.sync import Admin
        from shared.feed import Feed
        from shared.monitor import Monitor, count_records, create_topics, newest_timestamp_ms

        example, screen = self._example, self._screen
        screen.show_stage("starting the broker")
        servers = self._broker.wait_until_listening()
        with Admin({"bootstrap.servers": servers}) as admin:
            create_topics(admin, example.topics)
            before = count_records(admin, example.topics)
            newest_ms = newest_timestamp_ms(admin, example.input)
        # The input starts now, so its rate is the same from the first second.
        start_ms = max((newest_ms or 0) + 1, time.time_ns() // 1_000_000)
        monitor = resources.enter_context(Monitor(example, servers, self._data, before))
        messages = partial(example.messages, seed)
        topic, is_running = example.input.name, lambda: self._broker.is_running
        feed = resources.enter_context(Feed(servers, topic, messages, start_ms, is_running))
        self._polled_s = time.monotonic()

        def show(stage: str) -> None:
            self._show(monitor, stage)

        show("starting Spark")
        while self._continues(feed) and not self._spark.wait(POLL_S):
            show("starting Spark")
        if self._stop.is_set():
            return
        session = self._spark.session()
        show("starting the queries")
        self._queries = RestartedQueries(example.queries(session, servers, self._directory))
        monitor.queries = self._queries.running
        first, *others = self._queries.names
        # The others start later: each query starts several processes, and if all of them start at
        # once, the first results take as long as the last.
        self._queries.start(first)
        until_s = time.monotonic() + FIRST_RESULTS_S
        while self._continues(feed) and not self._has_results() and time.monotonic() < until_s:
            show("starting the queries")
            self._stop.wait(POLL_S)
        show("running")
        for name in others:
            if not self._stop.is_set():
                self._queries.start(name)
        while self._continues(feed) and not (seconds and screen.snapshot.elapsed_s >= seconds):
            show("running")
            self._stop.wait(POLL_S)
        feed.stop()
        until_s = time.monotonic() + CATCH_UP_S
        show("catching up")
        while self._continues(feed) and screen.snapshot.lag != 0 and time.monotonic() < until_s:
            self._stop.wait(POLL_S)
            show("catching up")
        self._queries.stop()
        show("stopped")

    def _show(self, monitor: "Monitor", stage: str) -> None:
        """Show the current state, or only the stage while the broker is too busy to answer."""
        try:
            self._screen.show(monitor.poll(stage))
        except OttlaError:
            self._broker.check()
            if time.monotonic() > self._polled_s + POLL_FAILURES_S:
                raise
            self._screen.show_stage(stage)
        else:
            self._polled_s = time.monotonic()

    def _has_results(self) -> bool:
        return self._screen.snapshot.output(self._example.outputs[0].label).count > 0

    def _continues(self, feed: "Feed") -> bool:
        """Return whether to continue; raise an OttlaError after a failure."""
        if self._stop.is_set():
            return False
        self._broker.check()
        if feed.failure is not None:
            raise RunFailed(f"the input could not be sent: {feed.failure}")
        self._queries.restart_failed()
        return True


class RestartedQueries:
    """Queries that are restarted if a Python process did not start in time."""

    def __init__(self, starts: "Mapping[str, Start]") -> None:
        self.running: dict[str, StreamingQuery] = {}
        self._starts = starts
        self._restarts_left = dict.fromkeys(self._starts, RESTARTS_MAX)

    @property
    def names(self) -> list[str]:
        """The names of all queries, in the order in which they start."""
        return [*self._starts]

    def start(self, name: str) -> None:
        """Start a query from its checkpoint."""
        self.running[name] = self._starts[name]()

    def restart_failed(self) -> None:
        """Restart the queries that failed for that reason; raise RunFailed for other reasons."""
        for name, query in [*self.running.items()]:
            failure = query.exception()
            if failure is None:
                continue
            if WORKER_TIMEOUT not in str(failure):
                raise RunFailed(f"query {name}: {str(failure).strip().splitlines()[0]}")
            if not self._restarts_left[name]:
                raise RunFailed(
                    f"query {name}: {WORKER_TIMEOUT} within 10 s; the machine is too busy"
                )
            self._restarts_left[name] -= 1
            self.start(name)

    def stop(self) -> None:
        """Stop all queries."""
        for query in self.running.values():
            query.stop()
