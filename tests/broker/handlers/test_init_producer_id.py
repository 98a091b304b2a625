"""InitProducerId: unique producer ids for producers without transactions."""

from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from ottla.controller.producer_ids import BLOCK_SIZE
from ottla.coordination.embedded import EmbeddedSession
from ottla.coordination.errors import ConnectionLoss
from ottla.errors import ErrorCode, StorageFailure
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

VERSIONS = range(6)

Given = tuple[int, int, int]


async def init(
    client: Client,
    version: int = 5,
    *,
    transactional_id: str | None = None,
    producer: tuple[int, int] = (-1, -1),
) -> Given:
    """Return the error code, the producer id and the epoch."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=1000,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    answer = await client.ask(request, InitProducerIdResponse, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def test_producer_ids_are_unique_across_restarts(tmp_path: Path) -> None:
    async def scenario() -> None:
        given: list[Given] = []
        for _ in range(3):
            async with broker(tmp_path) as running:
                client = await running.client()
                given += [await init(client, version) for version in VERSIONS]
        assert {(code, epoch) for code, _, epoch in given} == {(0, 0)}
        ids = [producer_id for _, producer_id, _ in given]
        assert ids == sorted(set(ids))
        assert ids[0] == 0
        assert ids[-1] >= 2 * BLOCK_SIZE

    run(scenario)


def test_second_request_gets_another_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS[3:]:
                _, first, _ = await init(client, version)
                code, second, epoch = await init(client, version, producer=(first, 7))
                assert (code, epoch) == (0, 0)
                assert second > first

    run(scenario)


def test_invalid_producer_identity_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            refused = (ErrorCode.INVALID_REQUEST, -1, -1)
            for version in VERSIONS:
                assert await init(client, version, transactional_id="") == refused
            for version in VERSIONS[3:]:
                for producer in ((-1, 0), (5, -1)):
                    assert await init(client, version, producer=producer) == refused
                    result = await init(client, version, transactional_id="x", producer=producer)
                    assert result == refused

    run(scenario)


def test_transactional_id_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            refused = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
            for version in VERSIONS:
                assert await init(client, version, transactional_id="x") == refused
            # The refused requests did not consume an id.
            assert await init(client) == (0, 0, 0)

    run(scenario)


@pytest.mark.parametrize("failure", [ConnectionLoss(), StorageFailure("the journal: EIO")])
def test_failed_id_reservation_is_retriable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    async def scenario() -> None:
        async def fail(*args: object, **options: object) -> None:
            raise failure

        async with broker(tmp_path) as running:
            client = await running.client()
            with monkeypatch.context() as patch:
                patch.setattr(EmbeddedSession, "create", fail)
                assert await init(client) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
            assert await init(client) == (0, 0, 0)

    run(scenario)
    assert "producer id not assigned" in caplog.messages
