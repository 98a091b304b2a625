"""`ottla pipeline reset`: deletes the checkpoints of a pipeline, as if it had never run.

Invariant: nothing is deleted while the pipeline runs, or without a confirmation. A Parquet
directory is deleted before the checkpoint of its query: Spark would skip rows if only the log of
the directory were left.
"""

from ottla.cli.escapes import printable
from ottla.cli.failures import Failed
from ottla.cli.result import Result
from ottla.cli.session import Session
from ottla.pipeline.earlier_runs import (
    delete_directories,
    existing_directories,
    query_directories,
)
from ottla.pipeline.run_files import RunFiles
from ottla.pipeline.spec.model import Pipeline


def reset_pipeline(
    pipeline: Pipeline, written: Pipeline, session: Session, *, outputs: bool, yes: bool
) -> Result:
    """Delete what earlier runs have left, after a confirmation; raises Failed."""
    queries = query_directories(pipeline, written)
    remote = [one.checkpoint.written for one in queries if one.checkpoint.path is None]
    if remote:
        what = f"the checkpoints are not on this machine: delete {remote[0]} with its own tools"
        raise Failed(what)
    files = RunFiles(pipeline.name)
    checkpoints, logged = existing_directories(queries)
    if not checkpoints and not (outputs and logged):
        return _result(pipeline.name, [], [])
    if logged and not outputs:
        what = (
            f"{logged[0].written} has files of earlier runs, and Spark would skip the first rows "
            "of a new run: add --files to delete them, or move them away"
        )
        raise Failed(what)
    found = [*(logged if outputs else ()), *checkpoints]
    with files.running():
        names = ", ".join(printable(one.written) for one in found)
        session.confirm(f"Delete {names}?", yes=yes)
        delete_directories(found)
    return _result(
        pipeline.name, [one.written for one in checkpoints], [one.written for one in logged]
    )


def _result(name: str, checkpoints: list[str], outputs: list[str]) -> Result:
    lines = [f"Deleted {printable(one)}" for one in (*outputs, *checkpoints)]
    lines = lines or [f"Pipeline {printable(name)} has no checkpoints."]
    return Result(
        {"pipeline": name, "checkpoints": [*checkpoints], "outputs": [*outputs]}, [*lines]
    )
