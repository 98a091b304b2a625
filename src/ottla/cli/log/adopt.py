"""`ottla log adopt`: takes over a Kafka broker's data.

Invariant: with --check nothing is changed. What cannot be taken over is listed on stdout; the
reasons of a refusal are on stderr.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ottla.broker.service import COORDINATION_FILE
from ottla.cli.output import Output
from ottla.cli.result import Failure, complain, show_failure
from ottla.clock import SystemClock
from ottla.cluster.adoption import Adoption
from ottla.controller.adoption import adopt
from ottla.errors import OttlaError
from ottla.ids import BrokerId
from ottla.log.files import OsDisk


def run(paths: Sequence[Path], *, node_id: int | None, check_only: bool, output: Output) -> int:
    """Adopt and return the exit code."""
    directories = [os.path.abspath(path) for path in paths]
    disk = OsDisk()
    try:
        adoption = asyncio.run(
            adopt(
                disk,
                SystemClock(),
                directories,
                COORDINATION_FILE,
                node_id=None if node_id is None else BrokerId(node_id),
                check_only=check_only,
            )
        )
    except OttlaError as error:
        reasons = str(error).splitlines()
        if output is Output.TABLE:
            for line in reasons:
                complain(f"refused: {line}")
        else:
            show_failure(Failure("; ".join(reasons), "REFUSED"), output)
        return 1
    finally:
        disk.close()
    if output is Output.TABLE:
        _print(adoption, directories, check_only=check_only)
    else:
        facts = _facts(adoption, taken=not check_only)
        if output is Output.JSON:
            typer.echo(json.dumps(facts))
        else:
            for name, value in facts.items():
                typer.echo(f"{name}: {json.dumps(value)}")
    return 0


def _facts(adoption: Adoption, *, taken: bool) -> dict[str, Any]:
    return {
        "taken": taken,
        "cluster_id": adoption.cluster_id,
        "node_id": adoption.node_id,
        "topics": [
            {
                "name": topic.name,
                "id": str(topic.id),
                "partitions": len(topic.leader_epochs),
                "bytes": topic.size,
                "settings": dict(topic.settings),
            }
            for topic in adoption.topics
        ],
        "not_taken": list(adoption.not_taken),
        "notes": list(adoption.notes),
    }


def _print(adoption: Adoption, directories: Sequence[str], *, check_only: bool) -> None:
    verb = "would be taken" if check_only else "taken"
    typer.echo(f"cluster {adoption.cluster_id}, broker {adoption.node_id}: {verb} over")
    for topic in adoption.topics:
        settings = " ".join(f"{name}={value}" for name, value in topic.settings.items())
        typer.echo(
            f"  {topic.name}  {topic.id}  partitions {len(topic.leader_epochs)}  "
            f"bytes {topic.size}  {settings}".rstrip()
        )
    for title, lines in (("not taken over", adoption.not_taken), ("note", adoption.notes)):
        for line in lines:
            typer.echo(f"{title}: {line}")
    if not check_only:
        dirs = ",".join(directories)
        typer.echo(f"start a broker on it with: ottla broker --override log.dirs={dirs}")
