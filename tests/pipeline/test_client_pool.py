"""The shelf: clients that are kept between tasks."""

import gc
import os
from collections.abc import Callable

import pytest

from ottla.pipeline.client_pool import CLIENTS_MAX, ClientPool


class Client:
    """Knows its settings, and whether it was closed."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.settings = settings
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def used(shelf: ClientPool[Client], **settings: object) -> Client:
    with shelf.borrow(settings) as client:
        assert not client.is_closed
        return client


def in_child(work: Callable[[], bool]) -> bool:
    """Whether work says so in a process that is forked from this one."""
    child = os.fork()
    if not child:
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_the_next_task_with_the_same_settings_has_the_same_client() -> None:
    shelf = ClientPool(Client)
    one, other = used(shelf, a=1, b=2), used(shelf, a=2, b=1)
    assert used(shelf, b=2, a=1) is one
    assert used(shelf, a=2, b=1) is other
    assert one.settings == {"a": 1, "b": 2}


@pytest.mark.parametrize("failure", [ValueError("no"), KeyboardInterrupt(), GeneratorExit()])
def test_a_client_whose_task_failed_is_closed_and_not_lent_again(failure: BaseException) -> None:
    shelf = ClientPool(Client)
    one = used(shelf)
    with pytest.raises(type(failure)), shelf.borrow({}):
        raise failure
    assert one.is_closed
    assert used(shelf) is not one


def test_a_client_that_cannot_be_closed_does_not_hide_why_its_task_failed() -> None:
    class Stubborn(Client):
        def close(self) -> None:
            raise OSError("not now")

    with pytest.raises(ValueError, match="no"), ClientPool(Stubborn).borrow({}):
        raise ValueError("no")


def test_the_clients_that_were_used_last_are_kept() -> None:
    shelf = ClientPool(Client)
    first = used(shelf, n=0)
    others = [used(shelf, n=n) for n in range(1, CLIENTS_MAX)]
    used(shelf, n=0)
    newest = used(shelf, n=CLIENTS_MAX)
    assert [one.is_closed for one in (first, *others, newest)] == [
        False,
        True,
        *(False,) * (CLIENTS_MAX - 1),
    ]


def test_two_tasks_at_a_time_have_a_client_each_and_one_is_kept() -> None:
    shelf = ClientPool(Client)
    with shelf.borrow({}) as one:
        other = used(shelf)
        assert other is not one
        assert not other.is_closed
    assert other.is_closed
    assert used(shelf) is one


def test_a_shelf_that_is_closed_ends_what_it_keeps_and_not_what_is_lent() -> None:
    shelf = ClientPool(Client)
    kept = used(shelf, n=0)
    with shelf.borrow({}) as lent:
        shelf.close()
        assert kept.is_closed
        assert not lent.is_closed
    assert used(shelf) is lent


def test_a_forked_process_has_clients_of_its_own() -> None:
    shelf = ClientPool(Client)
    one = used(shelf)

    def has_own() -> bool:
        own = used(shelf)
        return own is not one and used(shelf) is own and not one.is_closed

    assert in_child(has_own)
    assert used(shelf) is one


def test_the_collector_of_a_worker_is_spared_what_stays() -> None:
    """Once: what is frozen later would be garbage that nobody collects."""

    def is_spared() -> bool:
        gc.unfreeze()
        shelf = ClientPool(Client)
        used(shelf)
        spared = gc.get_freeze_count()
        kept = [object() for _ in range(100)], [[n] for n in range(100)]
        used(shelf, other=True)
        return spared > 10_000 and gc.get_freeze_count() <= spared and len(kept) == 2

    assert in_child(is_spared)
