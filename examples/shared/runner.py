"""Runs an example: starts everything, shows it until it is time to stop, and stops everything.

Spark takes the longest to start. So it starts first, in a thread, and the modules that the rest
needs are imported meanwhile. Examples without Spark skip that.

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
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import OttlaError
from ottla.pipeline.java import NoJava, check_java
from shared.dev_broker import DevBroker, ottla_command
from shared.example import Context, RunFailed

if TYPE_CHECKING:
    from ottla.pipeline.local_spark import LocalSpark
    from shared.example import Example, Feed, Job
    from shared.monitor import Monitor
    from shared.view import Screen

DEFAULT_EXAMPLE: Final = "sensors"
"""The one that `make run` runs without EXAMPLE."""

PORT_HINT: Final = "ottla dev --port"
"""The broker's error if the port is taken has it."""

SEED: Final = 7
UNATTENDED_S: Final = 60.0
"""The default of --seconds without a terminal."""

CATCH_UP_S: Final = 180.0
"""At the end the queries have so long to read the rest, which takes minutes on a busy machine."""

FIRST_RESULTS_S: Final = 90.0
"""A short run waits so long for first results, which take long on a busy machine."""

POLL_S: Final = 0.5
POLL_FAILURES_S: Final = 60.0
"""Polls may time out for so long on a busy machine, while the broker runs."""


def main(name: str, load_example: "Callable[[], Example]", *, uses_spark: bool = True) -> int:
    """Run an example as the command line says, and return the exit code.

    `load_example` is called while Spark starts, so it is the place for imports that take long.
    """
    command = "make run" if name == DEFAULT_EXAMPLE else f"make run EXAMPLE={name}"
    arguments = argument_parser(name, uses_spark=uses_spark).parse_args()
    if uses_spark:
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
            with ExitStack() as resources:
                broker = resources.enter_context(
                    DevBroker(arguments.port, data, directory / "broker.log")
                )
                spark: LocalSpark | None = None
                if uses_spark:
                    from ottla.pipeline import local_spark

                    spark = local_spark.LocalSpark(
                        name, directory / "spark.log", master=arguments.master
                    )
                    resources.enter_context(spark)
                import shared.view

                example = load_example()
                screen = shared.view.Screen(example, terminal)
                seconds = arguments.seconds or (None if screen.is_live else UNATTENDED_S)
                Run(example, screen, broker, spark, data, stop).run(arguments.seed, seconds)
                # Once every query has worked, Java has loaded the classes that they need.
                has_worked = screen.snapshot.lag is not None
                if spark is not None and has_worked and spark.save_classes():
                    screen.print(
                        "Saving Spark's classes for faster starts; this takes about a minute, and "
                        "Ctrl-C skips it."
                    )
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


def argument_parser(name: str, *, uses_spark: bool = True) -> argparse.ArgumentParser:
    """The options of every example."""
    job = "a job on Spark" if uses_spark else "services"
    parser = argparse.ArgumentParser(
        prog=name, description=f"Run a broker, generated input and {job} on this machine."
    )
    parser.add_argument(
        "--port", type=_port, default=9092, help="Port of the broker; 0 takes a free one (9092)"
    )
    parser.add_argument(
        "--data", type=Path, default=".ottla", help="Directory for all data (.ottla)"
    )
    if uses_spark:
        parser.add_argument("--master", default="local[*]", help="Master URL of Spark (local[*])")
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"Seed of the generated input ({SEED})"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        help="Stop so many seconds after the broker has started, but not before the first results "
        f"(without a terminal: {UNATTENDED_S:g}, else at Ctrl-C)",
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


def _end_of_java(error: Exception) -> str | None:
    """Return what an error says if Java has ended; None for other errors."""
    from py4j.protocol import Py4JError

    from ottla.pipeline.local_spark import error_summary

    return error_summary(error) if isinstance(error, Py4JError | ConnectionError) else None


class Run:
    """One run of an example, on a broker and a Spark that are starting."""

    def __init__(
        self,
        example: "Example",
        screen: "Screen",
        broker: DevBroker,
        spark: "LocalSpark | None",
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
        self._job: Job | None = None
        self._polled_s = 0.0

    def run(self, seed: int, seconds: float | None) -> None:
        """Run for so long, or until the stop event is set; raise an OttlaError after a failure."""
        try:
            with self._screen, ExitStack() as resources:
                self._start_and_show(resources, seed, seconds)
        except OttlaError:
            self._broker.check()
            raise
        except Exception as error:
            reason = None if self._spark is None else _end_of_java(error)
            if reason is None:
                raise
            if not self._stop.is_set():  # Java may have got the signal, too
                raise RunFailed(f"Spark has ended: {reason}") from None
        if not self._stop.is_set() and not self._has_results():
            logs = self._directory / ("broker.log" if self._spark is None else "spark.log")
            raise RunFailed(f"no {self._example.outputs[0].label} were written; see {logs}")

    def _start_and_show(self, resources: ExitStack, seed: int, seconds: float | None) -> None:
        from ottla.sync import Admin
        from shared.monitor import Monitor, count_records, create_topics, newest_timestamp_ms

        example, screen = self._example, self._screen
        screen.show_stage("starting the broker")
        servers = self._broker.wait_until_listening()
        with Admin({"bootstrap.servers": servers}) as admin:
            create_topics(admin, [*example.counted_topics, *example.topics])
            before = count_records(admin, example.counted_topics)
            newest_ms = newest_timestamp_ms(admin, example.input)
        context = Context(
            servers,
            self._directory,
            seed,
            # The input starts now, so its rate is the same from the first second.
            start_ms=max((newest_ms or 0) + 1, time.time_ns() // 1_000_000),
            is_broker_running=lambda: self._broker.is_running,
            spark=self._spark,
        )
        monitor = resources.enter_context(Monitor(example, servers, self._data, before))
        feed = example.feed(context)
        resources.enter_context(feed)
        self._polled_s = time.monotonic()

        def show(stage: str) -> None:
            self._show(monitor, stage)

        if self._spark is not None:
            show("starting Spark")
            while self._continues(feed) and not self._spark.wait(POLL_S):
                show("starting Spark")
        if self._stop.is_set():
            return
        started = "services" if self._spark is None else "queries"
        show(f"starting the {started}")
        job = example.job(context)
        job.start()
        self._job = monitor.job = job
        if self._spark is None:  # which stops its queries itself, also after a failure
            resources.callback(job.stop)
        until_s = time.monotonic() + FIRST_RESULTS_S
        while self._continues(feed) and not self._has_results() and time.monotonic() < until_s:
            show(f"starting the {started}")
            self._stop.wait(POLL_S)
        show("running")
        while self._continues(feed) and not (seconds and screen.snapshot.elapsed_s >= seconds):
            show("running")
            self._stop.wait(POLL_S)
        feed.stop()
        until_s = time.monotonic() + CATCH_UP_S
        show("catching up")
        while self._continues(feed) and screen.snapshot.lag != 0 and time.monotonic() < until_s:
            self._stop.wait(POLL_S)
            show("catching up")
        job.stop()
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
        if self._job is not None:
            self._job.check()
        return True
