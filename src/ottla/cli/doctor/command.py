"""`ottla doctor`: checks whether a broker and its clients can work here.

Modules are imported on use, so that other commands start fast.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.declaration import asks
from ottla.cli.result import Failure, Result, Table
from ottla.cli.session import Session
from ottla.cli.target import HERE

if TYPE_CHECKING:
    from ottla.cli.doctor.facts import ClusterFacts, Facts
    from ottla.cli.doctor.judgements import Judgement

_BROKER_PORT, _METRICS_PORT = 9092, 9192


@asks
async def doctor(
    session: Session,
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Check the disk of this data directory. The default is .ottla in the current "
            "directory; it is checked only if the cluster is on this machine.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            min=1,
            max=65_535,
            help="Check that this port of this machine is free, or that a broker listens on it. To "
            "choose the cluster, use -b.",
        ),
    ] = _BROKER_PORT,
    metrics_port: Annotated[
        int,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=1,
            max=65_535,
            help="Check that this port is free, or that the broker at --port serves its metrics "
            "on it.",
        ),
    ] = _METRICS_PORT,
) -> Result:
    """Check this machine and the connection to the cluster, and suggest fixes.

    Exit code: 0 if there are no problems (warnings are allowed), 1 otherwise.
    """
    from ottla.cli.doctor.judgements import judged

    facts = await _facts(session, data, port, metrics_port)
    return answer(facts.cluster, [*judged(facts)])


async def _facts(session: Session, data: Path | None, port: int, metrics_port: int) -> "Facts":
    import asyncio
    import dataclasses

    from ottla.cli.doctor import addresses, machine
    from ottla.cli.doctor.facts import Facts
    from ottla.clock import SystemClock

    settings = session.target.settings_of("admin")
    java = asyncio.to_thread(machine.java, os.environ)  # starts a JVM
    cluster, is_here, java_found, broker, page = await asyncio.gather(
        addresses.cluster(settings, chosen=session.target.servers != HERE),
        addresses.is_here(settings),
        java,
        addresses.broker_at(port),
        addresses.metrics_page_at(metrics_port),
    )
    if cluster.why_not is None:
        from ottla.cli.doctor.log_dirs import log_dirs
        from ottla.cli.doctor.partitions import skewed

        reading = session.target.settings_of("consumer", "admin")
        found = await asyncio.gather(skewed(settings, reading), log_dirs(settings))
        cluster = dataclasses.replace(cluster, skewed=found[0], log_dirs=found[1])
    return Facts(
        python=machine.python(),
        kernel=machine.kernel(),
        java=java_found,
        broker_port=machine.port(port, broker),
        metrics_port=machine.port(metrics_port, page),
        disk=machine.disk(data or Path(".ottla")) if data is not None or is_here else None,
        limits=machine.limits(),
        clock=machine.clock(SystemClock()),
        cluster=cluster,
    )


def answer(cluster: "ClusterFacts", found: "list[Judgement]") -> Result:
    """Return the judgements as a result; the first line names the cluster that was judged."""
    problems = [one for one in found if one.grade.value == "problem"]
    lines: list[Table | str] = [
        _subject(cluster),
        "",
        Table(
            ("GRADE", "ABOUT", "FOUND"), [(one.grade.value, one.about, one.found) for one in found]
        ),
    ]
    advice = [(one.about, one.advice) for one in found if one.advice]
    if advice:
        lines += ["", Table(("ABOUT", "REMEDY"), advice)]
    return Result(
        {
            "ok": not problems,
            "cluster": {"bootstrap_servers": cluster.servers, "id": cluster.id},
            "checks": [
                {
                    "about": one.about,
                    "grade": one.grade.value,
                    "found": one.found,
                    "advice": one.advice or None,
                }
                for one in found
            ],
        },
        lines,
        [Failure(_sum(problems), "PROBLEM")] if problems else [],
    )


def _subject(cluster: "ClusterFacts") -> str:
    known = f" (cluster id {cluster.id})" if cluster.id else ""
    default = "" if cluster.chosen else ", the default; choose another with -b"
    return f"Checked: this machine, and the cluster at {cluster.servers}{known}{default}"


def _sum(problems: "list[Judgement]") -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{count}: " + "; ".join(f"{one.about}: {one.found}" for one in problems)
