"""Fetch sessions: what a consumer named, in which order, and when it is told."""

import pytest

from ottla.broker.fetch_sessions import (
    EVICTION_SECONDS,
    FetchPartition,
    FetchSession,
    FetchSessions,
    Told,
)
from ottla.errors import ErrorCode, RequestError


def wanted(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(("t", partition), offset, 1000)


def sessions(slots: int = 10) -> FetchSessions:
    numbers = iter([5, 5, 6, 0, 7, 8, 9])
    return FetchSessions(lambda: slots, lambda: next(numbers))


def begun(
    all_of_them: FetchSessions,
    session_id: int,
    epoch: int,
    *changed: FetchPartition,
    forgotten: tuple[tuple[str, int], ...] = (),
    by_id: bool = False,
    now_s: float = 0,
) -> FetchSession | None:
    return all_of_them.begin(session_id, epoch, list(changed), forgotten, by_id=by_id, now_s=now_s)


def refused(code: ErrorCode, all_of_them: FetchSessions, session_id: int, epoch: int) -> None:
    with pytest.raises(RequestError) as error:
        begun(all_of_them, session_id, epoch)
    assert error.value.code is code


def test_a_session_remembers_what_was_named() -> None:
    them = sessions()
    session = begun(them, 0, 0, wanted(0), wanted(1), wanted(2))
    assert session is not None
    assert session.id == 5
    again = begun(them, 5, 1, wanted(1, offset=9), forgotten=(("t", 0),))
    assert again is session
    assert list(session.wanted.values()) == [wanted(1, offset=9), wanted(2)]
    assert begun(them, 5, 2) is session


def test_a_wrong_epoch_or_id_is_refused_and_the_session_stays() -> None:
    them = sessions()
    begun(them, 0, 0, wanted(0))
    refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, them, 99, 1)
    refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, them, 5, 2)
    with pytest.raises(RequestError) as error:
        begun(them, 5, 1, by_id=True)
    assert error.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert begun(them, 5, 1) is not None
    refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, them, 5, 1)


def test_epochs_begin_again_after_the_last() -> None:
    them = sessions()
    session = begun(them, 0, 0, wanted(0))
    assert session is not None
    session.epoch = 2**31 - 1
    begun(them, 5, 2**31 - 1)
    assert session.epoch == 1


def test_a_session_ends_when_asked_and_when_nothing_is_left() -> None:
    them = sessions()
    begun(them, 0, 0, wanted(0))
    assert begun(them, 5, -1, wanted(0)) is None
    assert len(them) == 0
    begun(them, 0, 0, wanted(0))
    assert begun(them, 5, 1, forgotten=(("t", 0),)) is None, "or its id would be told"
    assert len(them) == 0
    assert begun(them, 0, 0) is None  # nothing was named
    assert begun(them, 0, -1, wanted(0)) is None


def test_a_new_session_takes_the_place_of_the_clients_old_one() -> None:
    them = sessions()
    begun(them, 0, 0, wanted(0))
    session = begun(them, 5, 0, wanted(1))
    assert session is not None
    assert len(them) == 1


def test_ids_are_neither_zero_nor_taken() -> None:
    them = sessions()
    ids = [begun(them, 0, 0, wanted(n)) for n in range(3)]
    assert [one.id for one in ids if one] == [5, 6, 7]


def test_only_a_session_that_was_not_used_for_long_makes_room() -> None:
    them = sessions(slots=2)
    begun(them, 0, 0, wanted(0), now_s=0)
    begun(them, 0, 0, wanted(0), now_s=50)
    assert begun(them, 0, 0, wanted(1), now_s=EVICTION_SECONDS) is None
    begun(them, 6, 1, now_s=EVICTION_SECONDS)
    assert begun(them, 0, 0, wanted(1), now_s=EVICTION_SECONDS + 1) is not None
    refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, them, 5, 1)
    assert begun(sessions(slots=0), 0, 0, wanted(1)) is None


def test_a_partition_is_told_of_when_there_is_news_and_then_waits_its_turn() -> None:
    session = FetchSession(1, by_id=False, used_s=0)
    session.update([wanted(0), wanted(1)], ())
    told = Told(5, 5, 0)
    assert session.is_news(("t", 0), told, has_records=True, failed=False)
    assert [key[1] for key in session.wanted] == [1, 0]
    assert not session.is_news(("t", 0), told, has_records=False, failed=False)
    assert session.is_news(("t", 0), Told(6, 5, 0), has_records=False, failed=False)
    assert session.is_news(("t", 0), told, has_records=False, failed=True)
    assert session.is_news(("t", 0), told, has_records=False, failed=False)
