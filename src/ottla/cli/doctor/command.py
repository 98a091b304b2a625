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
    from ottla.cli.doctor.facts import Facts
    from ottla.cli.doctor.judgements import Judgement

_BROKER_PORT, _METRICS_PORT = 9092, 9192


@asks
async def doctor(
    session: Session,
    *,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Check this data directory.")
    ] = Path(".ottla"),
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            min=1,
            max=65_535,
            help="Check that this port is free or used by a broker.",
        ),
    ] = _BROKER_PORT,
    metrics_port: Annotated[
        int,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=1,
            max=65_535,
            help="Check that this port is free or used by a metrics endpoint.",
        ),
    ] = _METRICS_PORT,
) -> Result:
    """Check this machine and the connection to the cluster, and suggest fixes.

    Exit code: 0 if there are no problems (warnings are allowed), 1 otherwise.
    """
    from ottla.cli.doctor.judgements import judged

    return answer([*judged(await _facts(session, data, port, metrics_port))])


async def _facts(session: Session, data: Path, port: int, metrics_port: int) -> "Facts":
    import asyncio

    from ottla.cli.doctor import addresses, machine
    from ottla.cli.doctor.facts import Facts
    from ottla.clock import SystemClock

    java = asyncio.to_thread(machine.java, os.environ)  # starts a JVM
    cluster, java_found, is_broker, is_page = await asyncio.gather(
        addresses.cluster(
            session.target.settings_of("admin"), chosen=session.target.servers != HERE
        ),
        java,
        addresses.is_broker(port),
        addresses.is_metrics_page(metrics_port),
    )
    return Facts(
        python=machine.python(),
        kernel=machine.kernel(),
        java=java_found,
        ports=[
            machine.port(port, "a broker", is_ours=is_broker),
            machine.port(metrics_port, "its metrics", is_ours=is_page),
        ],
        disk=machine.disk(data),
        limits=machine.limits(),
        clock=machine.clock(SystemClock()),
        cluster=cluster,
    )


def answer(found: "list[Judgement]") -> Result:
    """Return the judgements as a result."""
    problems = [one for one in found if one.grade.value == "problem"]
    lines: list[Table | str] = [
        Table(
            ("GRADE", "ABOUT", "FOUND"), [(one.grade.value, one.about, one.found) for one in found]
        )
    ]
    advice = [(one.about, one.advice) for one in found if one.advice]
    if advice:
        lines += ["", Table(("ABOUT", "REMEDY"), advice)]
    return Result(
        {
            "ok": not problems,
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


def _sum(problems: "list[Judgement]") -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{count}: " + "; ".join(f"{one.about}: {one.found}" for one in problems)
