"""ElectLeaders: what a broker answers that stops being the controller meanwhile."""

import asyncio
from typing import cast

import pytest

from ottla.broker.handlers import elect_leaders
from ottla.broker.topics import Topics
from ottla.clock import SystemClock
from ottla.cluster.image import ClusterImage, Topic
from ottla.controller.plan import ElectionOutcome
from ottla.controller.propagation import Propagation
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Uuid
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest


class ResigningTopics:
    """The topics of a broker that is the controller until an election."""

    def __init__(self) -> None:
        self._is_controller = True
        self.image = ClusterImage("c").with_topics([Topic("t", Uuid(b"topic id of test"), ())])

    @property
    def controller(self) -> "ResigningTopics":
        if not self._is_controller:
            raise RequestError(ErrorCode.NOT_CONTROLLER)
        return self

    def propagation(self, timeout_ms: int) -> Propagation:
        return Propagation(SystemClock(), timeout_ms / 1000)

    async def elect_leaders(self, *args: object) -> list[ElectionOutcome]:
        assert self.controller
        self._is_controller = False
        return []


@pytest.mark.parametrize(("requests", "code"), [(1, ErrorCode.NONE), (2, ErrorCode.NOT_CONTROLLER)])
def test_controller_that_resigns_answers_election_of_all(requests: int, code: ErrorCode) -> None:
    topics = cast("Topics", ResigningTopics())
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)
    answer = elect_leaders._answer  # pyright: ignore[reportPrivateUsage]
    response = [asyncio.run(answer(request, topics)) for _ in range(requests)][-1]
    names = [one.topic for one in response.replica_election_results]
    assert (response.error_code, names) == (code, ["t"] if code is ErrorCode.NONE else [])
