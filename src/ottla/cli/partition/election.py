"""Leader elections and their results."""

from collections.abc import Sequence

from ottla.cli.failures import failure_of
from ottla.cli.partition.cluster_replicas import MoveAdmin
from ottla.cli.result import Result
from ottla.client.admin.reassignments import Election
from ottla.client.partitions import Partition


async def elected(admin: MoveAdmin, chosen: Sequence[Partition] | None, *, unclean: bool) -> Result:
    """Elect leaders of partitions; None means all that need it."""
    kind = Election.UNCLEAN if unclean else Election.PREFERRED
    told = await admin.elect_leaders(kind, chosen)
    names = sorted(told.succeeded)
    done = [str(one) for one in names if told.succeeded[one]]
    kept = [str(one) for one in names if not told.succeeded[one]]
    shown = [f"Elected a leader of {one}." for one in done]
    shown += [f"{one} needs no election." for one in kept]
    return Result(
        {"elected": done, "not_needed": kept},
        shown or ["No partition needs an election."],
        [failure_of(error, str(one)) for one, error in told.failed.items()],
    )
