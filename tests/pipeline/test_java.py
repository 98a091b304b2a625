"""The Java version that Spark needs."""

from pathlib import Path

import pytest

from ottla.pipeline.java import Java, NoJava, build_of, check_java, found_java, version_of


def a_java(folder: Path, says: str, code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("command not found", None),
    ],
)
def test_java_version_is_parsed(text: str, version: int | None) -> None:
    assert version_of(text) == version


def test_build_distinguishes_javas_of_one_version(tmp_path: Path) -> None:
    said = """openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)"""
    assert build_of(said) == "17.0.15+6-Debian-1deb12u1"
    assert build_of('java version "17"') is None
    home = a_java(tmp_path / "one", said)
    assert found_java({"JAVA_HOME": str(home)}) == Java(17, "17.0.15+6-Debian-1deb12u1")
    home = a_java(tmp_path / "two", 'openjdk version "21.0.1"')
    assert found_java({"JAVA_HOME": str(home)}) == Java(21, "21")


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    home = a_java(tmp_path / "home", 'openjdk version "21.0.1"')
    path = a_java(tmp_path / "path", 'openjdk version "17.0.1"')
    found = {"JAVA_HOME": str(home), "PATH": f"{path}/bin:/bin:/usr/bin"}
    assert check_java(found) == 21
    assert check_java({**found, "JAVA_HOME": ""}) == 17


@pytest.mark.parametrize(
    ("says", "reason"),
    [('java version "11.0.2"', "is Java 11"), ("no idea", "prints no version")],
)
def test_unsuitable_java_error_says_what_to_install(tmp_path: Path, says: str, reason: str) -> None:
    home = a_java(tmp_path / "home", says)
    with pytest.raises(NoJava, match=reason) as told:
        check_java({"JAVA_HOME": str(home), "PATH": "/bin:/usr/bin"})
    assert "install Java 17 or newer" in str(told.value)
    assert "\n" not in str(told.value)


def test_missing_java_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match="there is none on the PATH: install"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(NoJava, match="does not run"):
        check_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
