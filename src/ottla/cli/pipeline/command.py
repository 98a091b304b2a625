"""`ottla pipeline`: the commands for declared pipelines.

Slow modules are imported on use, so that help starts fast.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.broker.server import FormatOption, LevelOption
from ottla.cli.completion import topic_names
from ottla.cli.declaration import OutputOption, YesOption, answers, asks
from ottla.cli.escapes import printable
from ottla.cli.failures import Misused
from ottla.cli.output import Json, Output
from ottla.cli.result import Failure, Result, write_object
from ottla.cli.session import Session, conducted
from ottla.pipeline.spec.problems import InvalidPipeline, PipelineProblem, Severity, path_text

if TYPE_CHECKING:
    from ottla.pipeline.spec.loading import Loaded
    from ottla.pipeline.spec.model import Pipeline

app = typer.Typer(help="Check and run pipelines that are declared in a file.", no_args_is_help=True)

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The pipeline file: YAML, or Python with a variable `pipeline`.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Use this profile of the pipeline file (not a profile of `ottla profile`).",
    ),
]


@app.callback()
def pipeline() -> None:
    """Check and run pipelines that are declared in a file."""


@app.command("init")
@asks
async def init(
    session: Session,
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic to read.", autocompletion=topic_names),
    ],
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Write this file; default: TOPIC.yaml."),
    ] = None,
    sample: Annotated[
        int,
        typer.Option("--sample", metavar="COUNT", min=1, help="Read this many records."),
    ] = 200,
) -> Result:
    """Write a pipeline file for a topic, with a schema that is inferred from its newest records.

    The format of the source is json if at least half of the records are JSON objects, otherwise
    text or binary. A column gets the type that most of its values have. The command prints a
    warning for each column whose type does not fit all its values. The new pipeline reads the topic
    and prints the rows. The file has no client settings such as passwords: add them under `client`,
    as variables such as ${PASSWORD}.

    Exit codes: 0 if the file was written; 1 if it exists, or if the topic has no records; 2 for
    wrong usage.
    """
    from ottla.cli.pipeline.init import init_pipeline

    return await init_pipeline(session, topic, file, sample)


@app.command("validate")
@answers
def validate(
    file: FileArgument,
    *,
    profile: ProfileOption = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Let Spark check SQL, columns and output modes, too.")
    ] = False,
    topics: Annotated[
        bool,
        typer.Option("--topics", help="Check the topics of the sources and their newest records."),
    ] = False,
) -> Result:
    """Check a pipeline file and print all problems, each with line and column.

    If FILE is a Python file, the command runs it to get the pipeline.

    The command checks the structure of the file, the names, the schemas, the durations, the
    settings and the variables. It needs no Java and no broker. With --spark, it also starts Spark,
    which checks the steps and sinks without running them. With --topics, it checks that the topics
    of the sources exist, and that their newest records have the format of the source. It checks the
    variables of a profile only if you pass --profile.

    Exit codes: 0 if the pipeline has no errors; 1 if it has errors, if Spark does not start, or if
    no broker responds; 2 for wrong usage.
    """
    try:
        loaded = _load(file, profile)
    except InvalidPipeline as error:
        return _report(file, error.problems)
    problems = loaded.warnings
    if topics:
        import asyncio

        from ottla.cli.pipeline.run import check_brokers, hidden_values
        from ottla.cli.pipeline.topic_check import topic_problems

        with hidden_values(loaded.redaction):
            asyncio.run(check_brokers(loaded.pipeline))
            found = asyncio.run(topic_problems(loaded))
        hide = loaded.redaction.hide
        problems = (*problems, *(one._replace(what=hide(one.what)) for one in found))
    if spark:
        from ottla.cli.pipeline.spark_check import spark_problems

        problems = (*problems, *spark_problems(file, loaded))
    return _report(file, problems, is_sql_checked=spark)


class PlanOutput(StrEnum):
    """The format of a plan."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    MERMAID = "mermaid"


@app.command("plan")
def plan(
    file: FileArgument,
    profile: ProfileOption = None,
    output: Annotated[
        PlanOutput,
        typer.Option("-o", "--output", help="Print the plan in this format.", show_default=True),
    ] = PlanOutput.TABLE,
) -> None:
    """Print the queries of a pipeline: what each of them reads, writes and guarantees.

    The command needs no Java and no broker. It prints variables by name, without their values.

    Exit codes: 0 if the pipeline has no errors; 1 if it has errors; 2 for wrong usage.
    """
    plain = Output.TABLE if output is PlanOutput.MERMAID else Output(output)

    def act() -> Result:
        from ottla.cli.pipeline.plan import mermaid, plan_result

        try:
            shown = _with_profile(_load(file, profile).written, profile)
        except InvalidPipeline as error:
            return _report(file, error.problems)
        if output is PlanOutput.MERMAID:
            return Result({}, [*mermaid(shown)])
        return plan_result(shown)

    raise typer.Exit(conducted(act, plain))


@app.command("run")
def run(
    file: FileArgument,
    profile: ProfileOption = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            "--available-now",
            help="Process the records that are in the topics at the start, then exit.",
        ),
    ] = False,
    master: Annotated[
        str,
        typer.Option(
            "--master",
            metavar="URL",
            help="Run on this Spark master: local[N] or spark://HOST:PORT. For yarn and k8s://URL, "
            "run the pipeline with spark-submit; --dry-run prints the command line.",
        ),
    ] = "local[*]",
    position: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Start the first run at this position instead of the `start` setting of each "
            "source: earliest, latest, a time such as 2026-01-01T00:00:00Z, or offsets such as "
            '{"t": {"0": 12}}.',
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            metavar="COUNT",
            min=0,
            help="Restart a failed query at most this many times in a row.",
        ),
    ] = 10,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0,
            help="After a signal, wait at most this long until the running micro-batches have "
            "committed.",
        ),
    ] = 60.0,
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="ADDRESS",
            help="Serve a web page with the progress of the pipeline, /metrics for Prometheus and "
            "/healthz on this address, "
            "without authentication. ADDRESS is HOST:PORT, PORT (on 127.0.0.1) or off. Port 0 "
            "selects a free port, which the command shows.",
        ),
    ] = "0",
    keep_state: Annotated[
        bool,
        typer.Option(
            "--keep-state",
            help="Continue from the checkpoints also after a change of the pipeline that their "
            "state may not fit. Without this option, the command refuses to start after such a "
            "change.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the command line for spark-submit, and run nothing."),
    ] = False,
    log_format: FormatOption = "text",
    log_level: LevelOption = "info",
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a pipeline on Spark until a signal stops it.

    On a terminal, the command shows the progress of each query. Otherwise it logs events to stderr.
    At the end it prints a summary. Checkpoints, the status and the log of Spark are in
    .ottla/pipelines/NAME. The next run continues from the checkpoints. --from works only for a
    pipeline without checkpoints; `ottla pipeline reset` deletes them.

    If a query fails, the command restarts it after 1 second. If it fails again, the command waits 2
    seconds, then 4 and so on, up to a minute. Some errors are final, such as a failed expectation
    with `otherwise: fail`, lost data or a missing topic. After a final error, the command stops the
    other queries and exits with 1.

    After Ctrl-C or SIGTERM, the running micro-batches commit, and then the pipeline stops. After a
    second signal, the command exits at once. The next run then repeats the interrupted
    micro-batches.

    Exit codes: 0 if all queries have ended, or a signal has stopped the pipeline; 1 if a query
    failed with a final error or after its last restart, if Spark failed, or if the pipeline has
    errors; 2 for wrong usage.
    """

    def act() -> Result:
        from ottla.cli.pipeline.run import RunOptions, run_pipeline
        from ottla.cli.pipeline.run_pages import address_of

        options = RunOptions(
            once,
            master,
            restarts,
            grace,
            log_format,
            log_level,
            output,
            address_of(http),
            keep_state,
        )
        try:
            loaded = _load(file, profile)
            written = _with_profile(loaded.written, profile)
            if dry_run:
                from ottla.cli.pipeline.spark_submit import submit_result

                words = ["--once"] if once else []
                words += ["--keep-state"] if keep_state else []
                words += [] if position is None else ["--from", position]
                words += ["--restarts", str(restarts), "--grace", f"{grace:g}", "--http", http]
                words += ["--log-format", log_format, "--log-level", log_level]
                return submit_result(file, written, master, profile, words)
            return run_pipeline(file, loaded._replace(written=written), options, position)
        except InvalidPipeline as error:
            return _report(file, error.problems)

    raise typer.Exit(conducted(act, output))


@app.command("test")
def run_declared_tests(
    file: FileArgument,
    profile: ProfileOption = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--test", metavar="NAME", help="Run only this test; repeat for several."),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(
            "--junit",
            metavar="FILE",
            help="Write the results to this file, as JUnit XML.",
            dir_okay=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run the tests of a pipeline on Spark, without a broker.

    Each test gives micro-batches to the sources, and runs the streaming queries of the pipeline on
    this machine. It compares the rows, late rows, dead letters and failed expectations with those
    that the test expects. In a difference, - marks expected rows that are missing, and + marks rows
    that were found instead.

    Exit codes: 0 if all tests have passed; 1 if a test has failed, if the pipeline has errors or no
    tests, or if Spark does not start; 2 for wrong usage.
    """

    def act() -> Result:
        from ottla.cli.pipeline.run_tests import run_tests

        try:
            return run_tests(file, _load(file, profile), names or (), junit, output)
        except InvalidPipeline as error:
            return _report(file, error.problems)

    raise typer.Exit(conducted(act, output))


@app.command("status")
@answers
def status(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Show only the pipeline of this file; default: all pipelines.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
) -> Result:
    """Show the pipelines that run in the working directory, or have run there.

    While a pipeline runs, `ottla pipeline run` stores its figures every second; this command shows
    the stored figures. For a stopped pipeline, they are the last ones.
    """
    from ottla.cli.pipeline.running import status_result
    from ottla.pipeline.run_files import RunFiles, known_pipelines

    if file is None:
        return status_result([one.read() for one in known_pipelines()])
    try:
        loaded = _load(file, None)
    except InvalidPipeline as error:
        return _report(file, error.problems)
    return status_result([RunFiles(loaded.pipeline.name).read()])


@app.command("stop")
@answers
def stop(
    file: FileArgument,
    *,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait at most this long."),
    ] = 90.0,
) -> Result:
    """Stop a pipeline that runs in the working directory, and wait until it has stopped.

    The command sends SIGTERM. The running micro-batches commit before the pipeline stops.

    Exit codes: 0 if the pipeline has stopped; 1 if it does not run, or has not stopped in time; 2
    for wrong usage.
    """
    from ottla.cli.pipeline.running import stop_pipeline
    from ottla.pipeline.run_files import RunFiles

    try:
        loaded = _load(file, None)
    except InvalidPipeline as error:
        return _report(file, error.problems)
    return stop_pipeline(RunFiles(loaded.pipeline.name), timeout)


@app.command("reset")
def reset(
    file: FileArgument,
    profile: ProfileOption = None,
    outputs: Annotated[
        bool,
        typer.Option("--files", help="Also delete the Parquet directories of the sinks."),
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the checkpoints of a pipeline, so that its next run starts like the first run.

    The next run starts at the `start` setting of each source, or at the position of `run --from`,
    with empty state. It can write rows again that the sinks already have. The command fails while
    the pipeline runs.

    In each Parquet directory of a sink, Spark keeps a log of the micro-batches that it has written.
    The new run numbers its micro-batches from 0 again, and Spark would skip those whose numbers are
    in the log. Therefore, the command fails if there are such directories: delete them with
    --files, or move them away first.

    Exit codes: 0 if the checkpoints were deleted or there were none; 1 if they were not deleted, or
    if the pipeline has errors; 2 for wrong usage.
    """

    def act() -> Result:
        from ottla.cli.pipeline.reset import reset_pipeline
        from ottla.cli.target import Target

        try:
            loaded = _load(file, profile)
        except InvalidPipeline as error:
            return _report(file, error.problems)
        written = _with_profile(loaded.written, profile)
        session = Session(Target({}), output)
        return reset_pipeline(loaded.pipeline, written, session, outputs=outputs, yes=yes)

    raise typer.Exit(conducted(act, output))


@app.command("redrive")
@answers
def redrive(
    file: FileArgument,
    *,
    profile: ProfileOption = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Redrive only dead letters of this source."),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(
            "--error",
            metavar="TEXT",
            help="Redrive only dead letters whose error contains this text.",
        ),
    ] = None,
    attempts: Annotated[
        int,
        typer.Option(
            "--attempts",
            metavar="COUNT",
            min=0,
            help="Park records that have been dead letters more than this many times.",
        ),
    ] = 5,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the dead letters, but send nothing.")
    ] = False,
) -> Result:
    """Send the dead letters of a pipeline back to the topics that they come from.

    Dead letters are records that the pipeline could not use, for example because they were not
    valid JSON. A pipeline copies them to its dead-letter topic, with the error in their headers.

    Fix the pipeline or the producer first: the pipeline reads the records again, and so does every
    other consumer of the topics. The command sends each record at least once, with its key, value
    and headers. It removes the headers that the pipeline added, except ottla.attempts.

    If a record fails again, it becomes a dead letter again. The header ottla.attempts counts how
    often the record has been a dead letter. If this count is above --attempts, the command parks
    the record: it does not send the record back, but to the topic of parked records. The name of
    this topic is the name of the dead-letter topic with the suffix .parked.

    A consumer group stores which dead letters were sent, so the next redrive does not send them
    again. A step can also make dead letters. These are rows, not records of a topic, so the command
    cannot send them back.

    Exit codes: 0 if the selected dead letters were sent; 1 if one could not be sent, or if the
    pipeline has errors; 2 for wrong usage.
    """
    from ottla.cli.pipeline.redrive_command import redrive_pipeline
    from ottla.pipeline.redrive_decision import Selection
    from ottla.pipeline.spec.problems import did_you_mean, shown

    try:
        loaded = _load(file, profile)
    except InvalidPipeline as invalid:
        return _report(file, invalid.problems)
    pipeline, written = loaded.pipeline, _with_profile(loaded.written, profile)
    if source is not None and source not in pipeline.sources:
        hint = did_you_mean(source, pipeline.sources)
        raise Misused(f"--source: there is no source {shown(source)}{hint}")
    selection = Selection(pipeline.name, source, error, attempts)
    from ottla.cli.pipeline.run import hidden_values

    with hidden_values(loaded.redaction):
        return redrive_pipeline(pipeline, written, selection, dry_run=dry_run)


@app.command("schema")
def schema(output: OutputOption = Output.JSON) -> None:
    """Print the JSON Schema of a pipeline file, for editors.

    To use the schema in VS Code with the YAML extension, save it as pipeline.schema.json, and add
    this line to a pipeline file: # yaml-language-server: $schema=pipeline.schema.json
    """

    def act() -> None:
        from ottla.pipeline.spec.json_schema import json_schema

        write_object(json_schema(), Output.JSON if output is Output.TABLE else output)

    raise typer.Exit(conducted(act, output))


def _load(file: Path, profile: str | None) -> "Loaded":
    from ottla.pipeline.spec.loading import load

    try:
        return load(file, profile=profile)
    except OSError as error:
        raise Misused(f"{file}: {error.strerror}") from None


def _with_profile(written: "Pipeline", profile: str | None) -> "Pipeline":
    """Return a declaration with the settings of a profile, without the values of variables."""
    from ottla.pipeline.spec.model import with_profile

    return written if profile is None else with_profile(written, profile)


def _report(
    file: Path, problems: Sequence[PipelineProblem], *, is_sql_checked: bool = True
) -> Result:
    """Return the problems of a file as a result, which fails if one of them is an error."""
    errors = [one for one in problems if one.severity is Severity.ERROR]
    lines = [printable(one.in_file(str(file))) for one in problems]
    if not errors:
        more = "" if is_sql_checked else " (--spark also checks the SQL)"
        lines.append(f"{printable(str(file))}: no errors{more}")
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    return Result(
        {"file": str(file), "valid": not errors, "problems": [_object(one) for one in problems]},
        lines,
        [Failure(f"{file}: {count}", "INVALID_PIPELINE")] if errors else (),
    )


def _object(problem: PipelineProblem) -> dict[str, Json]:
    line, column = problem.position or (None, None)
    return {
        "severity": problem.severity.value,
        "line": line,
        "column": column,
        "path": path_text(problem.path),
        "message": problem.what,
    }
