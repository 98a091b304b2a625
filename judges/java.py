"""Downloads or compiles Java classes into the user's cache, and runs them.

A class runs with all jars that its pom names. A changed pom is downloaded again, and a changed
source is compiled again. If Java or Maven is missing, NoJudge says what to install.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

POM = Path(__file__).parent / "pom.xml"
CLIENTS_39_POM = Path(__file__).parent / "clients39.pom.xml"
SPARK_CONNECTOR_POM = Path(__file__).parent / "spark_connector.pom.xml"
ZOOKEEPER_POM = Path(__file__).parent / "zookeeper.pom.xml"


class NoJudge(Exception):
    """A judge is not available on this machine; the text says what is missing."""


def java_command(main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command that runs a class of Kafka with its libraries; downloads them if necessary."""
    return ["java", *options, "-cp", class_path(POM), main_class, *arguments]


def source_command(
    source: Path, *arguments: str, pom: Path = POM, log_level: str = "error"
) -> list[str]:
    """The command that runs a Java source with the jars of a pom; compiles and downloads first."""
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    quiet = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    path = f"{_compiled(source, pom)}:{class_path(pom)}"
    package = re.search(r"^package ([\w.]+);", source.read_text(), re.MULTILINE)
    main_class = f"{package[1]}.{source.stem}" if package else source.stem
    return ["java", *options, quiet, "-cp", path, main_class, *arguments]


def class_path(pom: Path) -> str:
    """The path of the jars; the first process downloads them, and the others wait."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NoJudge(f"needs {program}: install Java 17 and Maven to let Kafka judge")
    with _locked("judges", pom) as cache:
        found = cache / "class-path"
        if not _complete(found):
            _fetch(pom, found)
    return found.read_text()


@contextmanager
def _locked(kind: str, *files: Path) -> Generator[Path]:
    """A cache directory for the output of these files, which one process creates."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()[:12]
    cache = home / "ottla" / f"{kind}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _compiled(source: Path, pom: Path) -> Path:
    """The directory with the compiled classes of a source."""
    libraries = class_path(pom)
    with _locked("classes", source, pom) as cache:
        if not (cache / "compiled").exists():
            command = ["javac", "-proc:none", "-cp", libraries, "-d", str(cache), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{source.name} does not compile:\n{done.stdout}{done.stderr}")
            (cache / "compiled").touch()
    return cache


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
