"""`ottla cluster balance`: plans moves of replicas and leaders, shows and executes them."""

from collections.abc import Callable
from typing import Final

from ottla.cli.output import Json
from ottla.cli.partition.cluster_replicas import (
    ClusterReplicas,
    MoveAdmin,
    describe_replicas,
    with_traffic,
)
from ottla.cli.partition.moves import Order, carried_out
from ottla.cli.result import Cell, Result, Table
from ottla.cli.session import Session
from ottla.cli.topic.partition_load import bytes_shown
from ottla.cluster.balance import (
    TRAFFIC_MIN,
    AboveGoal,
    BalancePlan,
    BrokerLoad,
    Measure,
    plan_balance,
)


async def balanced(session: Session, admin: MoveAdmin, order: Order, goal: float) -> Result:
    """Show the plan and, if the user wants that, execute it."""
    hosted = await with_traffic(admin, await describe_replicas(admin))
    plan = plan_balance(hosted.places(), hosted.sizes(), goal)
    return await carried_out(
        session, admin, hosted, plan, order, _object(hosted, plan, goal), _shown(hosted, plan)
    )


def _shown(hosted: ClusterReplicas, plan: BalancePlan) -> list[Table | str]:
    racks = {one.id: one.rack for one in hosted.brokers}
    loads = [*plan.before.values()]
    columns: list[tuple[str, Callable[[BrokerLoad], Cell]]] = [
        ("BYTES", lambda load: bytes_shown(load.size_bytes)),
        ("REPLICAS", lambda load: load.replicas),
        ("LEADERS", lambda load: load.leaders),
    ]
    # Less traffic counts for nothing.
    if any(max(one.bytes_in, one.bytes_out) > TRAFFIC_MIN for one in loads):
        columns[1:1] = [
            ("IN", lambda load: f"{bytes_shown(load.bytes_in)}/s"),
            ("OUT", lambda load: f"{bytes_shown(load.bytes_out)}/s"),
        ]
    heads = [head for name, _ in columns for head in (name, f"NEW {name}")]
    rows = [
        (
            broker,
            racks.get(broker),
            *(shown(load) for _, shown in columns for load in (before, plan.after[broker])),
        )
        for broker, before in plan.before.items()
    ]
    reasons = [*map(_reason, plan.above)]
    return [Table(("BROKER", "RACK", *heads), rows), "", *reasons, *([""] if reasons else [])]


_NAMES: Final = {
    Measure.SIZE: "bytes",
    Measure.IN: "bytes in",
    Measure.OUT: "bytes out",
    Measure.LEADERS: "leaders",
}


def _reason(one: AboveGoal) -> str:
    def shown(value: float) -> str:
        match one.measure:
            case Measure.SIZE:
                return bytes_shown(round(value))
            case Measure.LEADERS:
                return f"{value:.0f}"
            case _:
                return f"{bytes_shown(round(value))}/s"

    return (
        f"Broker {one.broker} remains above the goal: {_NAMES[one.measure]} {shown(one.load)}, "
        f"goal {shown(one.limit)}: {one.reason}."
    )


def _object(hosted: ClusterReplicas, plan: BalancePlan, goal: float) -> dict[str, Json]:
    racks = {one.id: one.rack for one in hosted.brokers}
    return {
        "goal": goal,
        "brokers": [
            {
                "id": broker,
                "rack": racks.get(broker),
                "drained": hosted.is_drained(broker),
                "bytes": before.size_bytes,
                "new_bytes": plan.after[broker].size_bytes,
                "bytes_in": before.bytes_in,
                "new_bytes_in": plan.after[broker].bytes_in,
                "bytes_out": before.bytes_out,
                "new_bytes_out": plan.after[broker].bytes_out,
                "replicas": before.replicas,
                "new_replicas": plan.after[broker].replicas,
                "leaders": before.leaders,
                "new_leaders": plan.after[broker].leaders,
            }
            for broker, before in plan.before.items()
        ],
        "above_goal": [
            {
                "broker": one.broker,
                "measure": _NAMES[one.measure],
                "load": one.load,
                "goal": round(one.limit),
                "reason": one.reason,
            }
            for one in plan.above
        ],
    }
