"""All of it on one machine: a broker, the devices, the job on Spark, and a view of what happens.

Spark takes the longest to start. So it begins first, and what the rest needs is imported meanwhile.

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
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ottla.errors import OttlaError
from ottla.pipeline.java import NoJava, found_java
from sensors import archive
from sensors.dev_broker import DevBroker, ottla
from sensors.failure import Failed
from sensors.local_spark import LocalSpark

UNATTENDED_S: Final = 60.0
"""So long it runs where nobody looks."""

SEED: Final = 7


def main() -> int:
    """Run as the command line says; the exit code."""
    given = arguments().parse_args()
    try:
        java = found_java()
    except NoJava as error:
        print(f"{error}. The broker alone needs none: {ottla()} dev", file=sys.stderr)
        return 1
    # What Spark says goes to a file, and this stays with the terminal.
    terminal = os.fdopen(os.dup(1), "w")
    data: Path = given.data.absolute()
    folder = data / "sensors"
    kept = archive.place(java)
    end = None
    with heeded() as asked:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            log = folder / "spark.log"
            if kept.exists():
                spark = LocalSpark(given.master, log, archive.home(kept), archive.options(kept))
            else:
                spark = LocalSpark(given.master, log, folder / "spark")
            with DevBroker(given.port, data, folder / "broker.log") as broker, spark:
                from sensors.show import Show

                show = Show(terminal, broker, spark, data, asked)
                end = show.end
                seconds = given.seconds or (None if show.is_live else UNATTENDED_S)
                show.run(given.seed, seconds)
            reason = None
        except (Failed, OttlaError, OSError) as error:
            reason = str(error)
        except KeyboardInterrupt:  # the second
            reason = "ended at once: the next start goes on from the last checkpoint"
    if end is not None:
        unwritten = why_unwritten(end, given.picture)
        reason = reason or unwritten
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    print(how_to_go_on(sys.argv[1:], given.data), file=terminal, flush=True)
    return 0


def why_unwritten(end: Callable[[Path | None], None], picture: Path | None) -> str | None:
    """Say what is left, and keep a picture of it; why that could not be written."""
    try:
        end(picture)
    except OSError as error:
        return f"what was seen could not be written: {error}"
    return None


def how_to_go_on(again: list[str], data: Path) -> str:
    """The commands for the next time, as a shell takes them."""
    command = f"make run ARGS={shlex.quote(shlex.join(again))}" if again else "make run"
    return f"`{command}` goes on from here; `rm -r {shlex.quote(str(data))}` begins anew."


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
            # Who has asked is obeyed, and what is left takes no time.
            signal.signal(number, signal.SIG_IGN if asked.is_set() else handler)


if __name__ == "__main__":
    sys.exit(main())
