# pyright: reportPrivateUsage=false
"""The controller deletes the registrations of brokers that are proven dead (rule B13)."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.test_reassignments import Stage, staged
from ottla.cluster.registration import Registered
from ottla.controller.lease import register
from ottla.controller.store import ClusterStore
from ottla.ids import BrokerEpoch, BrokerId

ONE = BrokerId(1)


def is_registered(stage: Stage) -> bool:
    return ONE in stage.controller._registered


def test_b13_dead_leader_is_replaced_although_its_session_lives(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        leader = stage.brokers[ONE]
        await stage.controller.remove_dead(ONE, BrokerEpoch(leader.epoch - 1))
        assert is_registered(stage), "another broker epoch was proven"
        await stage.controller.remove_dead(ONE, leader.epoch)
        await stage.until(lambda: stage.state.leader == 2)
        assert (stage.state.in_sync, is_registered(stage)) == ((2,), False)

    staged(tmp_path, scenario)


def test_b13_broker_that_shuts_down_ends_its_session_itself(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        leader = stage.brokers[ONE]
        async with stage.controller.turn:
            await stage.controller.controlled_shutdown(ONE, leader.epoch)
        await stage.controller.remove_dead(ONE, leader.epoch)
        assert not stage.controller._brokers_changed.is_set()
        assert is_registered(stage)

    staged(tmp_path, scenario)


def test_b13_broker_that_registered_again_is_left_to_its_session(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        leader = stage.brokers[ONE]
        before = stage.controller._registered[ONE].registration
        await stage.controller.remove_dead(ONE, leader.epoch)
        await stage.until(lambda: not is_registered(stage))
        assert leader.session is not None
        epoch = await register(leader.session, replace(before, was_taken_for_dead=True))
        await stage.until(lambda: is_registered(stage))
        await stage.controller.remove_dead(ONE, epoch)
        assert not stage.controller._brokers_changed.is_set()
        assert is_registered(stage)
        stage.controller._known_since_s[ONE] -= stage.session_timeout_s
        await stage.controller.remove_dead(ONE, epoch)
        await stage.until(lambda: not is_registered(stage))

    staged(tmp_path, scenario)


def test_brokers_proven_dead_while_others_are_removed_do_not_end_the_election(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unregister = ClusterStore.unregister

    async def scenario(stage: Stage) -> None:
        controller = stage.controller
        dead = {broker: stage.brokers[broker].epoch for broker in (ONE, BrokerId(2))}

        async def one_more(store: ClusterStore, broker: Registered) -> bool:
            dead[BrokerId(3 + len(dead))] = BrokerEpoch(1)
            return await unregister(store, broker)

        monkeypatch.setattr(ClusterStore, "unregister", one_more)
        found = await controller.without_dead(await controller.load(), dead)
        assert {ONE, 2}.isdisjoint(found.registrations)

    staged(tmp_path, scenario)
