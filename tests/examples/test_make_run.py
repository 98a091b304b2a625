"""`make run EXAMPLE=name`: which examples there are, and what each of them installs."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(one.parent.name for one in (ROOT / "examples").glob("*/__main__.py"))


def dry_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Let make print what it would do."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--dry-run", "--always-make", "run", *arguments],
        cwd=ROOT,
        env={**kept, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_sensors_is_the_default() -> None:
    assert "sensors" in EXAMPLES
    assert "python -m sensors " in dry_run().stdout


def test_unknown_example_is_reported_with_the_known_ones() -> None:
    done = dry_run("EXAMPLE=sensor")
    assert done.returncode == 2
    assert done.stdout == ""
    known = " ".join(EXAMPLES)
    assert f'There is no example "sensor". The examples are: {known}.' in done.stderr


def test_examples_without_spark_do_not_check_java() -> None:
    for name in EXAMPLES:
        program = (ROOT / "examples" / name / "__main__.py").read_text()
        done = dry_run(f"EXAMPLE={name}", "ARGS=--seconds 5")
        assert f"python -m {name} --seconds 5" in done.stdout, done.stderr
        uses_spark = "uses_spark=False" not in program
        for needed in ("ottla.pipeline.java", "requirements/run.lock"):
            assert (needed in done.stdout) == uses_spark, name


def test_each_example_has_a_readme_and_is_in_the_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (line,) = [one for one in makefile.splitlines() if one.startswith("run: ")]
    assert f"EXAMPLE={'|'.join(EXAMPLES)}" in line
    for name in EXAMPLES:
        assert f"EXAMPLE={name}" in (ROOT / "examples" / name / "README.md").read_text() or (
            name == "sensors"
        )
