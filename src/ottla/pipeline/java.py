"""Finds the Java runtime for Spark, and checks its version.

Invariant: it is the runtime that Spark starts: that of JAVA_HOME, else the one on the PATH.

`make run` runs this module before it installs Spark, so it imports no other package.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.errors import OttlaError
from ottla.release import INSTALL_JAVA, JAVA_MIN

ANSWER_S: Final = 30.0


class NoJava(OttlaError):
    """There is no usable Java runtime; the message says what to install."""


class Java(NamedTuple):
    """The Java runtime that Spark starts."""

    version: int
    build: str  # tells builds of the same version apart


def check_java(environment: Mapping[str, str] | None = None) -> int:
    """Return the version of the Java that Spark starts; raise NoJava if Spark cannot use it."""
    return found_java(environment).version


def found_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java that Spark starts; raise NoJava if Spark cannot use it."""
    program = _program(os.environ if environment is None else environment)
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(
            f"Spark needs Java, but {program} does not run ({error}): {INSTALL_JAVA}"
        ) from None
    output = done.stderr + done.stdout
    version = version_of(output)
    if version is None:
        raise NoJava(f"Spark needs Java, but {program} -version prints no version: {INSTALL_JAVA}")
    if version < JAVA_MIN:
        raise NoJava(
            f"Spark needs Java {JAVA_MIN}, but {program} is Java {version}: {INSTALL_JAVA}"
        )
    return Java(version, build_of(output) or str(version))


def version_of(text: str) -> int | None:
    """Parse the version from `java -version`: 8 from "1.8.0_402", 17 from "17.0.15"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


def build_of(text: str) -> str | None:
    """Parse the build of the virtual machine, which `java -version` prints last."""
    found = re.findall(r"\(build ([^,)]+)", text)
    return found[-1] if found else None


def _program(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise NoJava(f"Spark needs Java, but there is none on the PATH: {INSTALL_JAVA}")
    return found


if __name__ == "__main__":
    try:
        check_java()
    except NoJava as error:
        sys.exit(str(error))
