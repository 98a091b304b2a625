"""Downloads or compiles Java classes into the user's cache, and runs them.

A class runs with all jars that its pom names. A changed pom is downloaded again, and a changed
source is compiled again. If Java or Maven is missing, NoJudge says what to install.

A Java process that maps an archive of Kafka's classes (class-data sharing) starts with less than
half of the processor time. `kafka_archive.py` writes the archive.
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
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", *archive_options(pom))
    quiet = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    # Java uses an archive only if the class path begins with the jars of the archive.
    path = f"{class_path(pom)}:{_compiled(source, pom)}"
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


def archive_options(pom: Path = POM) -> tuple[str, ...]:
    """The options with which Java maps the archive of a pom's classes; none if there is none."""
    archive = archive_path(pom)
    # Java ignores an archive that does not fit, and would say so in the output.
    use = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:class+path=off")
    return (*use, f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()


def archive_path(pom: Path = POM) -> Path:
    """Where the archive of a pom's classes is, for this Java."""
    program = Path(shutil.which("java") or "java").resolve()
    java = f"{program} {program.stat().st_mtime_ns if program.exists() else 0}"
    return _cache("archives", pom) / f"{hashlib.sha256(java.encode()).hexdigest()[:12]}.jsa"


@contextmanager
def locked_archive(pom: Path = POM) -> Generator[Path]:
    """The archive's path, for one process that may write the archive while the others wait."""
    with _locked("archives", pom):
        yield archive_path(pom)


@contextmanager
def _locked(kind: str, *files: Path) -> Generator[Path]:
    """A cache directory for the output of these files, which one process creates."""
    cache = _cache(kind, *files)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _cache(kind: str, *files: Path) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()[:12]
    return home / "ottla" / f"{kind}-{digest}"


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
