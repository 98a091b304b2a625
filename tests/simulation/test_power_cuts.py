"""Brokers lose power at the same moment, and with it everything that is not synced (rule C5)."""

import pytest

from ottla.replication.partition import Partition
from ottla.testing import device
from ottla.testing.cluster_scenario import Outcome, run
from ottla.testing.disk import Loss
from sampling import SOAK
from simulation.test_cluster_mutants import Drill

SEED = 11
CUTS = 2
ALL = 3


def outcome_of(brokers: int) -> Outcome:
    """Cut the power of some brokers, the leader among them, just after an acknowledgement."""

    async def script(drill: Drill) -> None:
        faults, history = drill.scenario.faults, drill.scenario.history
        for _ in range(CUTS):
            await drill.until_whole()
            await drill.clock.sleep(2.0)
            leader = drill.leader
            machines = [leader, *drill.others(leader)][:brokers]
            before = history.acknowledged
            while history.acknowledged == before:
                await drill.clock.sleep(0.001)
            for machine in machines:
                faults.cut_power(machine, Loss.ALL)
            await drill.clock.sleep(1.0)
            for machine in machines:
                machine.wanted.set()

    return run(SEED, minutes=0, script=lambda scenario: script(Drill(scenario)), flushed=True)


@pytest.fixture(autouse=True)
def slow_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sync take longer than a round trip between brokers."""
    monkeypatch.setattr(device, "SYNC_SECONDS_MAX", 0.3)


@pytest.mark.parametrize("brokers", (1, 2, ALL) if SOAK else (ALL,))
def test_c5_power_cut_loses_no_acknowledged_record(brokers: int) -> None:
    outcome = outcome_of(brokers)
    assert outcome.violations == []
    assert outcome.acknowledged > 0


def test_unflushed_records_of_the_leader_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same power cuts lose records if the leader counts what it has not flushed."""

    def advance(self: Partition, now_s: float | None = None) -> None:
        end = self.log.log_end_offset
        if self.in_sync is not None:
            at_s = self._clock.elapsed_s() if now_s is None else now_s  # pyright: ignore[reportPrivateUsage]
            end = self.in_sync.high_watermark(self.high_watermark, end, at_s)
        self._set_high_watermark(end)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(Partition, "_advance_high_watermark", advance)
    monkeypatch.setattr(Partition, "must_flush", False)
    assert outcome_of(ALL).violations != []
