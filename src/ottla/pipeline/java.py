"""The Java that Spark runs on: whether there is one, and whether it is new enough.

Invariant: what is found here is what Spark would start: JAVA_HOME counts before the path.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.errors import OttlaError

JAVA_MIN: Final = 17
"""What Spark 4 needs."""

ANSWER_S: Final = 30.0
INSTALL: Final = (
    f"install a Java runtime of version {JAVA_MIN} or newer (Debian: openjdk-17-jre-headless; "
    "macOS: brew install openjdk), or let JAVA_HOME name one"
)


class NoJava(OttlaError):
    """Spark cannot run here; the text says what to install."""


class Java(NamedTuple):
    """The one that Spark would start."""

    version: int
    build: str  # what tells it from others of its version


def check_java(environment: Mapping[str, str] | None = None) -> int:
    """The version of the Java that Spark would start; NoJava when it cannot."""
    return found_java(environment).version


def found_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark would start; NoJava when it cannot."""
    around = os.environ if environment is None else environment
    program = _program(around)
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"Spark needs Java, and {program} does not run ({error}): {INSTALL}") from None
    told = done.stderr + done.stdout
    version = version_of(told)
    if version is None:
        raise NoJava(f"Spark needs Java, and {program} does not say its version: {INSTALL}")
    if version < JAVA_MIN:
        raise NoJava(f"Spark needs Java {JAVA_MIN}, and {program} is Java {version}: {INSTALL}")
    return Java(version, build_of(told) or str(version))


def version_of(text: str) -> int | None:
    """The version in what `java -version` says: 8 of "1.8.0_402", 17 of "17.0.15"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


def build_of(text: str) -> str | None:
    """What the last line of `java -version` says in brackets of the virtual machine's build."""
    found = re.findall(r"\(build ([^,)]+)", text)
    return found[-1] if found else None


def _program(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise NoJava(f"Spark needs Java, and there is none: {INSTALL}")
    return found
