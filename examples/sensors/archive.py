"""An archive of Spark's classes, which Java takes over as they are: checked and laid out once.

`python -m sensors.archive` makes it, as a part of `make run`, unless it is there. To make it, the
job runs once on a little; Java writes the classes which that took when it ends.

Invariant: what has the name of an archive is a whole one. Without one, and with one that does not
fit, Java starts as ever; nothing else depends on it.
"""

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ottla.pipeline.java import Java, NoJava, found_java
from sensors.local_spark import LocalSpark, first_line

READINGS_MS: Final = 20_000
"""What the devices send in so long is enough for averages, alerts and dead letters."""

QUERY_S: Final = 180
DUMP_S: Final = 180.0
SEED: Final = 7


class Unmade(Exception):
    """There is no archive; the text says why."""


def place(java: Java, environment: Path | None = None) -> Path:
    """Where the archive is, in the environment of Python: each Java and each Spark has its own."""
    name = re.sub(r"[^\w.+-]+", "_", f"java-{java.build}-spark-{version('pyspark')}")
    return (environment or Path(sys.prefix)) / ".classes" / f"{name}.jsa"


def home(archive: Path) -> Path:
    """The home of Spark that belongs to it: the class path has to stay as it was."""
    return archive.parent.with_name("spark-home")


def options(archive: Path) -> str:
    """What tells Java to use it; one that does not fit is left alone."""
    return f"-Xshare:auto {_quoted(f'-XX:SharedArchiveFile={archive}')}"


def _quoted(option: str) -> str:
    """An option as Spark reads it from a list of them."""
    return '"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"'))


Learn = Callable[[Path, Path, str], None]
"""Runs the job in a folder, with a home of Spark and an option for its Java."""


def main(environment: Path | None = None, learning: "Learn | None" = None) -> int:
    """Make it, unless it is there or could not be made; the exit code, 0 also without one."""
    try:
        archive = place(found_java(), environment)
    except NoJava:
        return 0  # the example itself says what to do about it
    refused = archive.with_suffix(".refused")
    if archive.exists() or refused.exists():
        return 0
    print("once: keeping Spark's classes for faster starts, a minute or so", flush=True)
    begun_s = time.monotonic()
    try:
        make(archive, learning or learn)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # the edge: what goes wrong here is in nobody's way
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        print(f"Spark starts without kept classes: {reason}", flush=True)
        _refuse(refused, reason)
        return 0
    print(f"kept, after {time.monotonic() - begun_s:.0f} s: {archive}", flush=True)
    return 0


def make(archive: Path, learning: Learn) -> None:
    """Run the job on a little, and let Java keep the classes that this took."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=archive.parent) as name:
        made = Path(name) / "classes.jsa"
        learning(Path(name), home(archive), _quoted(f"-XX:ArchiveClassesAtExit={made}"))
        if not made.exists():
            raise Unmade("this Java keeps none")
        os.replace(made, archive)


def learn(folder: Path, spark_home: Path, option: str) -> None:
    """What `make run` does, on a little and once."""
    from sensors import topics
    from sensors.dev_broker import DevBroker

    spark = LocalSpark("local[*]", folder / "spark.log", spark_home, option, DUMP_S)
    with DevBroker(0, folder / "broker", folder / "broker.log") as broker, spark:
        from ottla.sync import Admin, Producer
        from sensors.devices import messages

        servers = broker.listening()
        with Admin({"bootstrap.servers": servers}) as admin:
            topics.create(admin)
        now_ms = time.time_ns() // 1_000_000
        with Producer({"bootstrap.servers": servers}) as producer:
            for one in messages(SEED, now_ms - READINGS_MS, now_ms):
                key = one.key.encode()
                producer.send(topics.READINGS, key=key, value=one.value, timestamp_ms=one.due_ms)
        session = spark.session()
        from py4j.protocol import Py4JError

        from sensors import job

        try:
            for start in job.queries(session, servers, str(folder), availableNow=True).values():
                query = start()
                if not query.awaitTermination(QUERY_S):
                    raise Unmade("the machine is too busy")
                _ = query.lastProgress
        except Py4JError as error:
            raise Unmade(first_line(error)) from None


def _refuse(refused: Path, reason: str) -> None:
    """Not again, for it takes its time; who removes the file lets it be tried again."""
    with suppress(OSError):
        refused.write_text(reason + "\n")


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    sys.exit(main())
