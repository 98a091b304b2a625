"""Pipelines on Spark: the data source `format("ottla")`, and the declaration of a pipeline.

The classes of the declaration are imported on first use, so that Spark's workers and commands start
fast.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipeline.spec.loading import Loaded, load, resolve
    from ottla.pipeline.spec.model import (
        Expectation,
        ExpectationHook,
        Hook,
        LagHook,
        Pipeline,
        PipelineTest,
        Profile,
        Sink,
        Source,
        Step,
        Watermark,
    )
    from ottla.pipeline.spec.problems import InvalidPipeline, PipelineProblem

__all__ = [
    "Expectation",
    "ExpectationHook",
    "Hook",
    "InvalidPipeline",
    "LagHook",
    "Loaded",
    "Pipeline",
    "PipelineProblem",
    "PipelineTest",
    "Profile",
    "Sink",
    "Source",
    "Step",
    "Watermark",
    "load",
    "register",
    "resolve",
]

_MODULES: Final = {
    "Expectation": "model",
    "ExpectationHook": "model",
    "Hook": "model",
    "InvalidPipeline": "problems",
    "LagHook": "model",
    "Loaded": "loading",
    "Pipeline": "model",
    "PipelineProblem": "problems",
    "PipelineTest": "model",
    "Profile": "model",
    "Sink": "model",
    "Source": "model",
    "Step": "model",
    "Watermark": "model",
    "load": "loading",
    "resolve": "loading",
}


def register(spark: "SparkSession", *, push_filters: bool = False) -> None:
    """Let a session read and write topics with `format("ottla")`.

    Its streams commit their offsets to consumer groups after each micro-batch. With `push_filters`,
    batch reads fetch only records that match filters on partition, offset and timestamp. Then use
    each DataFrame with one filter only, and `load()` another DataFrame for the next filter.
    """
    from ottla.pipeline.registration import register as register_session

    register_session(spark, push_filters=push_filters)


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'ottla.pipeline' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f"ottla.pipeline.spec.{module}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
