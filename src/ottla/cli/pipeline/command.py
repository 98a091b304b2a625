"""`ottla pipeline`: validate and schema.

Modules are imported on use, so that other commands start fast.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.declaration import OutputOption, answers
from ottla.cli.failures import Misused
from ottla.cli.output import Json, Output
from ottla.cli.result import Failure, Result, write_object
from ottla.cli.session import conducted

if TYPE_CHECKING:
    from ottla.pipeline.spec.problems import PipelineProblem

app = typer.Typer(help="Check pipelines that are declared in a file.", no_args_is_help=True)

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The pipeline file, in YAML.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="Use the settings of this profile of the pipeline."
    ),
]


@app.callback()
def pipeline() -> None:
    """Check pipelines that are declared in a file."""


@app.command("validate")
@answers
def validate(file: FileArgument, *, profile: ProfileOption = None) -> Result:
    """Check a pipeline file and print all problems, each with line and column.

    The command needs no Java and no broker. It checks the structure of the file, the names, the
    schemas, the durations, the settings and the variables. Spark checks the SQL when the pipeline
    runs. Variables of a profile are checked only if you pass --profile.

    Exit codes: 0 if the pipeline has no errors; 1 if it has errors; 2 for wrong usage.
    """
    from ottla.pipeline.spec.loading import load
    from ottla.pipeline.spec.problems import InvalidPipeline, Severity

    try:
        loaded = load(file, profile=profile)
    except InvalidPipeline as error:
        problems = error.problems
    except OSError as error:
        raise Misused(f"{file}: {error.strerror}") from None
    else:
        problems = loaded.warnings
    errors = [one for one in problems if one.severity is Severity.ERROR]
    lines = [one.in_file(str(file)) for one in problems]
    if not errors:
        lines.append(f"{file}: no errors")
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    return Result(
        {"file": str(file), "valid": not errors, "problems": [_object(one) for one in problems]},
        lines,
        [Failure(f"{file}: {count}", "INVALID_PIPELINE")] if errors else (),
    )


@app.command("schema")
def schema(output: OutputOption = Output.JSON) -> None:
    """Print the JSON Schema of a pipeline file, for editors.

    In VS Code with the YAML extension, save the schema to a file and add this line to a pipeline
    file: # yaml-language-server: $schema=pipeline.schema.json
    """

    def act() -> None:
        from ottla.pipeline.spec.json_schema import json_schema

        write_object(json_schema(), Output.JSON if output is Output.TABLE else output)

    raise typer.Exit(conducted(act, output))


def _object(problem: "PipelineProblem") -> dict[str, Json]:
    from ottla.pipeline.spec.problems import path_text

    line, column = problem.position or (None, None)
    return {
        "severity": problem.severity.value,
        "line": line,
        "column": column,
        "path": path_text(problem.path),
        "message": problem.what,
    }
