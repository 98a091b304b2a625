"""Acknowledgements that wait for offsets of several partitions, or for their timeout."""

from typing import cast

from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.log.offset_waiters import OffsetWaiters
from ottla.replication.partition import Partition
from ottla.replication.produce_purgatory import DelayedProduce
from ottla.testing.clock import SimulatedClock, simulated


class Broken:
    """A partition whose storage failures are counted."""

    failures = 0

    def storage_error(self, failure: StorageFailure) -> RequestError:
        self.failures += 1
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))


class Scene:
    """One DelayedProduce that waits for two partitions."""

    def __init__(self, timeout_ms: int | None = None) -> None:
        self.partition = Broken()
        self.one, self.two = OffsetWaiters(), OffsetWaiters()
        self.errors: dict[str, ErrorCode] = {}
        self.completed: list[Exception | None] = []
        self.delayed = DelayedProduce[str](self._set_error)
        led = cast("Partition", self.partition)
        self.delayed.wait_for(led, self.one, 5, "one")
        self.delayed.wait_for(led, self.two, 7, "two")
        self.delayed.begin(self.completed.append, timeout_ms)

    def _set_error(self, response: str, error: RequestError) -> None:
        self.errors[response] = error.code


def test_completes_after_its_last_partition() -> None:
    scene = Scene()
    scene.two.finish_up_to(7)
    scene.one.finish_up_to(4)
    assert not scene.completed
    scene.one.finish_up_to(5)
    assert (scene.completed, scene.errors) == ([None], {})


def test_error_of_one_partition_leaves_the_other_waiting() -> None:
    scene = Scene()
    scene.one.fail_all(RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not scene.completed
    scene.two.fail_all(StorageFailure("broken on purpose"))
    assert scene.completed == [None]
    assert scene.errors == {
        "one": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "two": ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert scene.partition.failures == 1  # the data directory goes offline


def test_error_of_our_own_completes_at_once() -> None:
    scene, bug = Scene(), RuntimeError("broken on purpose")
    scene.one.fail_all(bug)
    assert (scene.completed, scene.errors, len(scene.two)) == ([bug], {}, 0)


def test_times_out_with_the_partitions_that_still_wait() -> None:
    async def scenario(clock: SimulatedClock) -> None:
        scene = Scene(timeout_ms=1500)
        scene.one.finish_up_to(5)
        await clock.sleep(1.4)
        assert not scene.completed
        await clock.sleep(0.2)
        assert scene.completed == [None]
        assert scene.errors == {"two": ErrorCode.REQUEST_TIMED_OUT}
        assert len(scene.two) == 0
        scene.two.finish_up_to(7)
        assert scene.completed == [None]

    simulated(scenario)


def test_completed_or_cancelled_does_not_time_out() -> None:
    async def scenario(clock: SimulatedClock) -> None:
        done, cancelled = Scene(timeout_ms=100), Scene(timeout_ms=100)
        done.one.finish_up_to(5)
        done.two.finish_up_to(7)
        cancelled.delayed.cancel()
        assert (len(cancelled.one), len(cancelled.two)) == (0, 0)
        await clock.sleep(1)
        assert (done.completed, done.errors) == ([None], {})
        assert (cancelled.completed, cancelled.errors) == ([], {})

    simulated(scenario)
