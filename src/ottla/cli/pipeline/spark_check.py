"""`ottla pipeline validate --spark`: lets Spark analyse a pipeline, without starting a query.

Invariant: Spark runs only for the check, and its output goes to a log file. The file is kept if
Spark does not start.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.failures import Failed
from ottla.errors import OttlaError
from ottla.pipeline.spec.loading import Loaded
from ottla.pipeline.spec.problems import InvalidPipeline, PipelineProblem
from ottla.release import how_to_install


def spark_problems(file: Path, loaded: Loaded) -> Sequence[PipelineProblem]:
    """Return the problems that Spark finds; raises Failed if Spark cannot start."""
    try:
        from ottla.pipeline.compiler import compile_pipeline
    except ModuleNotFoundError as error:
        what = f"--spark needs {error.name}: {how_to_install('spark')}"
        raise Failed(what) from None
    from ottla.pipeline.local_spark import LocalSpark

    # Python steps are modules beside the file, or in the working directory.
    sys.path[:0] = [str(file.resolve().parent), os.getcwd()]
    directory = Path(tempfile.mkdtemp(prefix="ottla-validate-"))
    log = directory / "spark.log"
    is_needed = False
    try:
        # An archive of the classes of a check would miss those of a run.
        with LocalSpark("ottla", log, master="local[1]", records_classes=False) as spark:
            compile_pipeline(spark.session(), loaded, str(file))
    except InvalidPipeline as error:
        return error.problems
    except OttlaError as error:
        is_needed = log.exists()  # without Java there is no log
        raise Failed(str(error)) from error
    finally:
        if not is_needed:
            shutil.rmtree(directory, ignore_errors=True)
    return ()
