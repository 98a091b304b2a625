"""`ottla pipeline redrive`: sends dead letters back to their topics."""

import asyncio
from collections import Counter

from ottla.cli.pipeline.run import check_brokers
from ottla.cli.result import Result, Table
from ottla.pipeline.redrive import parked_topic, redrive
from ottla.pipeline.redrive_decision import Fate, Selection
from ottla.pipeline.spec.model import Pipeline, dead_letter_topic

_MEANINGS = {
    Fate.REDRIVEN: "sent back to their topics",
    Fate.PARKED: "dead letters too often, sent to {parked}",
    Fate.NOT_SELECTED: "left for a later redrive",
    Fate.NOT_POSSIBLE: "rows of steps, which cannot be sent back",
}


def redrive_pipeline(
    pipeline: Pipeline, written: Pipeline, selection: Selection, *, dry_run: bool
) -> Result:
    """Redrive the dead letters of a pipeline; `written` has no values of variables."""
    asyncio.run(check_brokers(pipeline))
    return result_of(written, redrive(pipeline, selection, dry_run=dry_run), dry_run=dry_run)


def result_of(written: Pipeline, fates: Counter[Fate], *, dry_run: bool) -> Result:
    """Return the counts as a result."""
    topic, parked = dead_letter_topic(written), parked_topic(written)
    rows = [
        (str(fate), fates[fate], meaning.format(parked=parked))
        for fate, meaning in _MEANINGS.items()
        if fates[fate] or fate is Fate.REDRIVEN
    ]
    title = f"Dead letters of {written.name} in topic {topic}"
    return Result(
        {
            "pipeline": written.name,
            "topic": topic,
            "dry_run": dry_run,
            **{fate.replace(" ", "_"): fates[fate] for fate in _MEANINGS},
        },
        [
            f"{title}{', not sent' if dry_run else ''}",
            "",
            Table(("FATE", "COUNT", "MEANING"), rows),
        ],
    )
