"""`ottla cluster balance`: plans moves of replicas and leaders, shows and executes them."""

from ottla.cli.output import Json
from ottla.cli.partition.moves import Order, carried_out
from ottla.cli.partition.survey import MoveAdmin, Survey, surveyed
from ottla.cli.result import Result, Table
from ottla.cli.session import Session
from ottla.cli.topic.partition_load import bytes_shown
from ottla.cluster.balance import BalancePlan, plan_balance


async def balanced(session: Session, admin: MoveAdmin, order: Order, goal: float) -> Result:
    """Show the plan and, if the user wants that, execute it."""
    survey = await surveyed(admin)
    plan = plan_balance(survey.places(), survey.sizes(), goal)
    return await carried_out(
        session, admin, survey, plan, order, _object(survey, plan, goal), _shown(survey, plan)
    )


def _shown(survey: Survey, plan: BalancePlan) -> list[Table | str]:
    racks = {one.id: one.rack for one in survey.brokers}
    rows = [
        (
            broker,
            racks.get(broker),
            bytes_shown(before.size_bytes),
            bytes_shown(plan.after[broker].size_bytes),
            before.replicas,
            plan.after[broker].replicas,
            before.leaders,
            plan.after[broker].leaders,
        )
        for broker, before in plan.before.items()
    ]
    heads = (
        "BROKER", "RACK", "BYTES", "NEW BYTES", "REPLICAS", "NEW REPLICAS", "LEADERS",
        "NEW LEADERS",
    )  # fmt: skip
    return [Table(heads, rows), ""]


def _object(survey: Survey, plan: BalancePlan, goal: float) -> dict[str, Json]:
    racks = {one.id: one.rack for one in survey.brokers}
    return {
        "goal": goal,
        "brokers": [
            {
                "id": broker,
                "rack": racks.get(broker),
                "drained": survey.is_drained(broker),
                "bytes": before.size_bytes,
                "new_bytes": plan.after[broker].size_bytes,
                "replicas": before.replicas,
                "new_replicas": plan.after[broker].replicas,
                "leaders": before.leaders,
                "new_leaders": plan.after[broker].leaders,
            }
            for broker, before in plan.before.items()
        ],
    }
