"""The answers to ISR proposals whose change cannot be stored (rules A10, A11 and B5)."""

from pathlib import Path

from controller.test_reassignments import KEY, Stage, staged
from ottla.cluster.znodes import broker_path, state_path
from ottla.errors import ErrorCode
from ottla.ids import BrokerId

TWO = BrokerId(2)


def test_a11_leader_learns_that_the_isr_stays(tmp_path: Path) -> None:
    """A broker registers again before its joining is stored, so the partition does not change.

    The leader keeps a proposal after INVALID_UPDATE_VERSION, until it gets newer metadata. There
    is none here, so it would never propose an ISR again.
    """

    async def scenario(stage: Stage) -> None:
        assert await stage.propose(1) is ErrorCode.NONE
        before = stage.state
        two = stage.brokers[TWO]

        async def register_again() -> None:
            assert two.session is not None
            epoch = two.epoch
            await two.session.delete(broker_path(TWO))
            await stage.start_broker(two)
            assert two.epoch > epoch

        stage.session.before_write = register_again
        assert await stage.propose(1, 2) is ErrorCode.INELIGIBLE_REPLICA
        assert stage.state == before
        await stage.until(lambda: stage.controller.image.brokers[TWO].epoch == two.epoch)
        assert await stage.propose(1, 2) is ErrorCode.NONE

    staged(tmp_path, scenario)


def test_b5_proposal_for_a_partition_that_changed_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        session = stage.brokers[TWO].session
        assert session is not None
        path = state_path(KEY.topic, KEY.partition)

        async def change_partition() -> None:
            await session.set(path, (await session.get(path)).data)

        before = stage.state
        stage.session.before_write = change_partition
        assert await stage.propose(1) is ErrorCode.INVALID_UPDATE_VERSION
        assert stage.state.version == before.version + 1
        assert await stage.propose(1) is ErrorCode.NONE

    staged(tmp_path, scenario)
