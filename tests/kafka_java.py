"""Kafka's Java tools as judges: fetched by their coordinates, kept in the user's cache.

Without Java and Maven a test that needs them is skipped and says so; in CI it fails, because
there they belong to the machine.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

POM = Path(__file__).parent / "judges" / "pom.xml"


def run_java(main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a class of Kafka's with its libraries."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            missing = f"needs {program}: install Java 17 and Maven to let Kafka judge"
            if os.environ.get("CI"):
                pytest.fail(missing)
            pytest.skip(missing)
    return subprocess.run(
        ["java", "-cp", _class_path(), main_class, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def _class_path() -> str:
    """Where the jars are; the first test that asks fetches them, the others wait for it."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = home / "ottla" / f"judges-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    found = cache / "class-path"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete(found):
            _fetch(found)
    return found.read_text()


def _complete(class_path: Path) -> bool:
    return class_path.exists() and all(map(os.path.exists, class_path.read_text().split(":")))


def _fetch(class_path: Path) -> None:
    arguments = ["-q", "-B", "-ntp", "-f", str(POM), f"-Dmdep.outputFile={class_path}"]
    done = subprocess.run(
        ["mvn", *arguments, "dependency:build-classpath"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"Maven could not fetch Kafka's tools:\n{done.stdout}{done.stderr}")
