"""The client pool keeps clients between tasks."""

import gc
import os
from collections.abc import Callable

import pytest

from ottla.pipeline.client_pool import CLIENTS_MAX, ClientPool


class Client:
    """Records its settings, and whether it was closed."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.settings = settings
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def used(pool: ClientPool[Client], **settings: object) -> Client:
    with pool.borrow(settings) as client:
        assert not client.is_closed
        return client


def in_child(work: Callable[[], bool]) -> bool:
    """Whether a function returns true in a process that is forked from this one."""
    child = os.fork()
    if not child:
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_next_task_with_equal_settings_reuses_the_client() -> None:
    pool = ClientPool(Client)
    one, other = used(pool, a=1, b=2), used(pool, a=2, b=1)
    assert used(pool, b=2, a=1) is one
    assert used(pool, a=2, b=1) is other
    assert one.settings == {"a": 1, "b": 2}


@pytest.mark.parametrize("failure", [ValueError("no"), KeyboardInterrupt(), GeneratorExit()])
def test_client_of_a_failed_task_is_closed(failure: BaseException) -> None:
    pool = ClientPool(Client)
    one = used(pool)
    with pytest.raises(type(failure)), pool.borrow({}):
        raise failure
    assert one.is_closed
    assert used(pool) is not one


def test_failed_close_does_not_hide_the_task_error() -> None:
    class Stubborn(Client):
        def close(self) -> None:
            raise OSError("not now")

    with pytest.raises(ValueError, match="no"), ClientPool(Stubborn).borrow({}):
        raise ValueError("no")


def test_least_recently_used_client_is_closed() -> None:
    pool = ClientPool(Client)
    first = used(pool, n=0)
    others = [used(pool, n=n) for n in range(1, CLIENTS_MAX)]
    used(pool, n=0)
    newest = used(pool, n=CLIENTS_MAX)
    assert [one.is_closed for one in (first, *others, newest)] == [
        False,
        True,
        *(False,) * (CLIENTS_MAX - 1),
    ]


def test_concurrent_tasks_have_separate_clients() -> None:
    pool = ClientPool(Client)
    with pool.borrow({}) as one:
        other = used(pool)
        assert other is not one
        assert not other.is_closed
    assert other.is_closed
    assert used(pool) is one


def test_closed_pool_closes_only_idle_clients() -> None:
    pool = ClientPool(Client)
    kept = used(pool, n=0)
    with pool.borrow({}) as lent:
        pool.close()
        assert kept.is_closed
        assert not lent.is_closed
    assert used(pool) is lent


def test_forked_process_has_its_own_clients() -> None:
    pool = ClientPool(Client)
    one = used(pool)

    def has_own() -> bool:
        own = used(pool)
        return own is not one and used(pool) is own and not one.is_closed

    assert in_child(has_own)
    assert used(pool) is one


def test_worker_freezes_long_lived_objects_once() -> None:
    """Freezing happens once: objects that are frozen later would be garbage that is never
    collected.
    """

    def is_spared() -> bool:
        gc.unfreeze()
        pool = ClientPool(Client)
        used(pool)
        spared = gc.get_freeze_count()
        kept = [object() for _ in range(100)], [[n] for n in range(100)]
        used(pool, other=True)
        return spared > 10_000 and gc.get_freeze_count() <= spared and len(kept) == 2

    assert in_child(is_spared)
