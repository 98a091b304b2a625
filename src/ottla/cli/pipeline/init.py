"""`ottla pipeline init`: writes a pipeline file for a topic, from a sample of its records.

Invariant: an existing file is never replaced, and the file that is written has no errors. Passwords
of the connection are not written.
"""

import json
import os
import re
from pathlib import Path
from typing import Final

from ottla.cli.escapes import printable
from ottla.cli.failures import Failed
from ottla.cli.result import Result
from ottla.cli.session import Session
from ottla.pipeline.spec.inference import Inferred, infer

_NOT_IN_TABLES: Final = re.compile(r"[^A-Za-z0-9_]")
_NOT_IN_NAMES: Final = re.compile(r"^[^A-Za-z0-9]+")


async def init_pipeline(session: Session, topic: str, file: Path | None, sample: int) -> Result:
    """Write the file; raises Failed."""
    name = _NOT_IN_NAMES.sub("", topic) or "pipeline"
    path = file or Path(f"{name}.yaml")
    if path.exists():
        raise Failed(f"{path} exists: choose another file with --file")
    await session.probe()
    values = await _sample(session, topic, sample)
    if not values:
        raise Failed(f"topic {topic} has no records: write some, so that there is a sample")
    found = infer(values)
    text = pipeline_text(name, topic, session.target.servers, found, len(values))
    _write_new(path, text)
    lines = [f"Wrote {printable(str(path))}, from {len(values)} records of {topic}."]
    lines += [printable(f"warning: {note}") for note in found.notes]
    lines.append(f"Check the schema, then: ottla pipeline run {printable(str(path))}")
    return Result(
        {
            "file": str(path),
            "topic": topic,
            "records": len(values),
            "format": found.format,
            "schema": found.schema,
            "notes": [*found.notes],
        },
        [*lines],
    )


def pipeline_text(name: str, topic: str, servers: str, found: Inferred, records: int) -> str:
    """Return the file: the topic as a source, and a console sink."""
    table = _NOT_IN_TABLES.sub("_", topic)
    table = table if not table[0].isdigit() else f"t_{table}"
    lines = [
        f"# From {records} records of the topic. Nothing is inferred when the pipeline runs:",
        "# correct the schema here. A record that does not fit becomes a dead letter.",
        f"name: {json.dumps(name)}",
        f"brokers: {json.dumps(servers)}",
        "sources:",
        f"  {table}:",
        f"    topic: {json.dumps(topic)}",
        *_schema_lines(found),
        "sinks:",
        f"  - {{from: {table}, console: true}}",
    ]
    return "\n".join(lines) + "\n"


def _schema_lines(found: Inferred) -> list[str]:
    quoted = json.dumps(found.schema, ensure_ascii=False)
    return [f"    {found.format}: {quoted}"]


async def _sample(session: Session, topic: str, count: int) -> list[bytes | None]:
    """Return the values of the newest records of a topic, up to about `count`."""
    from ottla.cli.pipeline.topic_check import sample
    from ottla.client.admin import Admin

    target = session.target
    async with Admin(target.settings_of("admin", "consumer")) as admin:
        # A consumer would wait for a topic that does not exist.
        (await admin.describe_topics([topic])).or_raise()
    return await sample(target.settings_of("consumer", "admin"), topic, count)


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise Failed(f"cannot write {path}: {os.strerror(error.errno or 0)}") from None
