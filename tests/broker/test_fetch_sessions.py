"""Fetch sessions: the partitions of a session, their order, and when they are returned."""

import pytest

from ottla.broker.fetch_sessions import (
    EVICTION_SECONDS,
    FetchPartition,
    FetchSession,
    FetchSessions,
    Told,
)
from ottla.errors import ErrorCode, RequestError


def fetch_partition(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(("t", partition), offset, 1000)


def sessions(slots: int = 10) -> FetchSessions:
    numbers = iter([5, 5, 6, 0, 7, 8, 9])
    return FetchSessions(lambda: slots, lambda: next(numbers))


def begin(
    cache: FetchSessions,
    session_id: int,
    epoch: int,
    *changed: FetchPartition,
    forgotten: tuple[tuple[str, int], ...] = (),
    by_id: bool = False,
    now_s: float = 0,
) -> FetchSession | None:
    return cache.begin(session_id, epoch, list(changed), forgotten, by_id=by_id, now_s=now_s)


def assert_refused(code: ErrorCode, cache: FetchSessions, session_id: int, epoch: int) -> None:
    with pytest.raises(RequestError) as error:
        begin(cache, session_id, epoch)
    assert error.value.code is code


def test_session_remembers_its_partitions() -> None:
    cache = sessions()
    session = begin(cache, 0, 0, fetch_partition(0), fetch_partition(1), fetch_partition(2))
    assert session is not None
    assert session.id == 5
    again = begin(cache, 5, 1, fetch_partition(1, offset=9), forgotten=(("t", 0),))
    assert again is session
    assert list(session.wanted.values()) == [fetch_partition(1, offset=9), fetch_partition(2)]
    assert begin(cache, 5, 2) is session


def test_wrong_epoch_or_id_is_refused_and_the_session_stays() -> None:
    cache = sessions()
    begin(cache, 0, 0, fetch_partition(0))
    assert_refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, cache, 99, 1)
    assert_refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, cache, 5, 2)
    with pytest.raises(RequestError) as error:
        begin(cache, 5, 1, by_id=True)
    assert error.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert begin(cache, 5, 1) is not None
    assert_refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, cache, 5, 1)


def test_epoch_wraps_around_to_1() -> None:
    cache = sessions()
    session = begin(cache, 0, 0, fetch_partition(0))
    assert session is not None
    session.epoch = 2**31 - 1
    begin(cache, 5, 2**31 - 1)
    assert session.epoch == 1


def test_session_ends_on_request_and_when_empty() -> None:
    cache = sessions()
    begin(cache, 0, 0, fetch_partition(0))
    assert begin(cache, 5, -1, fetch_partition(0)) is None
    assert len(cache) == 0
    begin(cache, 0, 0, fetch_partition(0))
    assert begin(cache, 5, 1, forgotten=(("t", 0),)) is None, "otherwise its id would be returned"
    assert len(cache) == 0
    assert begin(cache, 0, 0) is None  # no partition was named
    assert begin(cache, 0, -1, fetch_partition(0)) is None


def test_new_session_replaces_the_old_one() -> None:
    cache = sessions()
    begin(cache, 0, 0, fetch_partition(0))
    session = begin(cache, 5, 0, fetch_partition(1))
    assert session is not None
    assert len(cache) == 1


def test_ids_are_unique_and_not_zero() -> None:
    cache = sessions()
    ids = [begin(cache, 0, 0, fetch_partition(n)) for n in range(3)]
    assert [one.id for one in ids if one] == [5, 6, 7]


def test_only_old_sessions_are_evicted() -> None:
    cache = sessions(slots=2)
    begin(cache, 0, 0, fetch_partition(0), now_s=0)
    begin(cache, 0, 0, fetch_partition(0), now_s=50)
    assert begin(cache, 0, 0, fetch_partition(1), now_s=EVICTION_SECONDS) is None
    begin(cache, 6, 1, now_s=EVICTION_SECONDS)
    assert begin(cache, 0, 0, fetch_partition(1), now_s=EVICTION_SECONDS + 1) is not None
    assert_refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, cache, 5, 1)
    assert begin(sessions(slots=0), 0, 0, fetch_partition(1)) is None


def test_changed_partition_is_returned_and_moves_last() -> None:
    session = FetchSession(1, by_id=False, used_s=0)
    session.update([fetch_partition(0), fetch_partition(1)], ())
    result = Told(5, 5, 0)
    assert session.is_news(("t", 0), result, has_records=True, failed=False)
    assert [key[1] for key in session.wanted] == [1, 0]
    assert not session.is_news(("t", 0), result, has_records=False, failed=False)
    assert session.is_news(("t", 0), Told(6, 5, 0), has_records=False, failed=False)
    assert session.is_news(("t", 0), result, has_records=False, failed=True)
    assert session.is_news(("t", 0), result, has_records=False, failed=False)
