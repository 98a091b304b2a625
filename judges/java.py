"""Java classes of others: fetched by their coordinates, kept in the user's cache, run.

Invariant: whatever is run has every jar that its pom names; a pom that changes is fetched anew.
Without Java or Maven it is NoJudge with what to install.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).parent / "pom.xml"
CLIENTS_39_POM = Path(__file__).parent / "clients39.pom.xml"
SPARK_CONNECTOR_POM = Path(__file__).parent / "spark_connector.pom.xml"
ZOOKEEPER_POM = Path(__file__).parent / "zookeeper.pom.xml"


class NoJudge(Exception):
    """A judge cannot be had on this machine; the text says what is missing."""


def java_command(main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command that runs a class of Kafka's with its libraries; may fetch them first."""
    return ["java", *options, "-cp", class_path(POM), main_class, *arguments]


def source_command(source: Path, *arguments: str, pom: Path = POM) -> list[str]:
    """The command that compiles and runs one Java source with the jars of a pom; may fetch them."""
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", *options, quiet, "-cp", class_path(pom), str(source), *arguments]


def class_path(pom: Path) -> str:
    """Where the jars are; the first process that asks fetches them, the others wait for it."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NoJudge(f"needs {program}: install Java 17 and Maven to let Kafka judge")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = home / "ottla" / f"judges-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    found = cache / "class-path"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete(found):
            _fetch(pom, found)
    return found.read_text()


def _complete(found: Path) -> bool:
    return found.exists() and all(map(os.path.exists, found.read_text().split(":")))


def _fetch(pom: Path, found: Path) -> None:
    arguments = ["-q", "-B", "-ntp", "-f", str(pom), f"-Dmdep.outputFile={found}"]
    done = subprocess.run(
        ["mvn", *arguments, "dependency:build-classpath"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"Maven could not fetch what {pom.name} names:\n{done.stdout}{done.stderr}"
        )
