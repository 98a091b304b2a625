"""The count of client threads, which other tests rely on."""

import threading
from concurrent.futures import ThreadPoolExecutor

from client.leaks import client_threads
from ottla.client.sync.portal import Portal


def test_threads_of_the_block_are_counted_until_they_end() -> None:
    with client_threads() as started, ThreadPoolExecutor(1) as pool:
        ours, of_our_thread = Portal("ottla mine"), pool.submit(Portal, "ottla also mine").result()
        assert {one.name for one in started()} == {"ottla mine", "ottla also mine"}
        ours.close()
        assert {one.name for one in started()} == {"ottla also mine"}
        of_our_thread.close()
        assert not started()


def test_threads_of_other_threads_are_not_counted() -> None:
    begin, made = threading.Event(), list[Portal]()

    def run() -> None:
        begin.wait()
        made.append(Portal("ottla other"))

    other = threading.Thread(target=run)
    other.start()
    with client_threads() as started:
        begin.set()
        other.join()
        assert not started()
    made[0].close()
