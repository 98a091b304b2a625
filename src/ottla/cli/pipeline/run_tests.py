"""`ottla pipeline test`: runs the tests of a pipeline on a local Spark, without a broker.

Invariant: Spark runs only for the tests, and its output goes to a log file. The file is kept if
Spark does not start.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO
from xml.etree import ElementTree

from ottla.cli.escapes import escaped
from ottla.cli.failures import Failed, Misused
from ottla.cli.output import Output
from ottla.cli.pipeline.run import add_python_path, check_spark
from ottla.cli.result import Failure, Result
from ottla.errors import OttlaError
from ottla.pipeline.spec.loading import Loaded
from ottla.pipeline.spec.problems import InvalidPipeline, did_you_mean, shown

if TYPE_CHECKING:
    from ottla.pipeline.declared_tests import TestOutcome

MASTER: Final = "local[2]"
SAVING: Final = (
    "Saving Spark's classes once, for faster starts; this takes about a minute; Ctrl-C skips it"
)


def run_tests(
    file: Path, loaded: Loaded, names: Sequence[str], junit: Path | None, output: Output
) -> Result:
    """Run tests, all of them if none is named; raises Failed if Spark cannot start."""
    declared = [one.name for one in loaded.pipeline.tests]
    for name in names:
        if name not in declared:
            hint = did_you_mean(name, declared)
            raise Misused(f"{file} has no test {shown(name)}{hint}")
    if not declared:
        raise Failed(f"{file} has no tests: add them under the key tests", "NO_TESTS")
    check_spark(MASTER)
    add_python_path(file)
    chosen = [name for name in declared if not names or name in names]
    # Spark's output is redirected to a file, so keep the terminal.
    with os.fdopen(os.dup(1), "w") as terminal, os.fdopen(os.dup(2), "w") as errors:
        results = terminal if output is Output.TABLE else None
        outcomes = _outcomes(file, loaded, chosen, results, errors)
    if junit is not None:
        junit.write_bytes(junit_report(loaded.pipeline.name, outcomes))
    return result_of(file, outcomes)


def _outcomes(
    file: Path,
    loaded: Loaded,
    names: Sequence[str],
    terminal: TextIO | None,
    errors: TextIO,
) -> "list[TestOutcome]":
    from ottla.pipeline.local_spark import LocalSpark

    directory = Path(tempfile.mkdtemp(prefix="ottla-test-"))
    log = directory / "spark.log"
    is_needed = False
    settings = {name: str(value) for name, value in loaded.pipeline.spark.items()}
    outcomes: list[TestOutcome] = []
    try:
        hide = loaded.redaction.hide if loaded.redaction else None
        with LocalSpark("ottla test", log, master=MASTER, settings=settings, hide=hide) as spark:
            from ottla.pipeline.declared_tests import DeclaredTests

            with DeclaredTests(spark.session(), loaded, str(file)) as tests:
                for name in names:
                    outcomes.append(tests.run(name))
                    if terminal is not None:
                        print(*outcome_lines(outcomes[-1]), sep="\n", file=terminal, flush=True)
            if not any(one.problems for one in outcomes) and spark.save_classes():
                print(SAVING, file=errors, flush=True)
    except InvalidPipeline:
        raise
    except OttlaError as error:
        is_needed = log.exists()
        raise Failed(str(error)) from error
    finally:
        if not is_needed:
            shutil.rmtree(directory, ignore_errors=True)
    return outcomes


def outcome_lines(outcome: "TestOutcome") -> list[str]:
    """Return the result of a test as lines."""
    word = "FAIL" if outcome.problems else "PASS"
    first = f"{word}  {escaped(outcome.name)} ({outcome.seconds:.1f} s)"
    return [first, *(f"      {escaped(line)}" for line in outcome.problems)]


def result_of(file: Path, outcomes: "Sequence[TestOutcome]") -> Result:
    """Return the results of all tests; their lines were printed when they ended."""
    failed = [one for one in outcomes if one.problems]
    count = "1 test" if len(outcomes) == 1 else f"{len(outcomes)} tests"
    return Result(
        {
            "file": str(file),
            "passed": not failed,
            "tests": [
                {
                    "name": one.name,
                    "passed": not one.problems,
                    "seconds": round(one.seconds, 3),
                    "problems": list(one.problems),
                }
                for one in outcomes
            ],
        },
        [f"{count}, {len(failed)} failed"],
        [Failure(f"{file}: {len(failed)} of {count} failed", "TESTS_FAILED")] if failed else (),
    )


def junit_report(pipeline: str, outcomes: "Sequence[TestOutcome]") -> bytes:
    """Return the results as JUnit's XML, which CI systems read."""
    suite = ElementTree.Element(
        "testsuite",
        name=pipeline,
        tests=str(len(outcomes)),
        failures=str(sum(bool(one.problems) for one in outcomes)),
        errors="0",
        time=f"{sum(one.seconds for one in outcomes):.3f}",
    )
    for one in outcomes:
        seconds = f"{one.seconds:.3f}"
        case = ElementTree.SubElement(
            suite, "testcase", classname=pipeline, name=one.name, time=seconds
        )
        if one.problems:
            failure = ElementTree.SubElement(case, "failure", message=one.problems[0])
            failure.text = "\n".join(one.problems)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
