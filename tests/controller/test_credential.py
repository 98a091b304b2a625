"""The credential of a cluster: created once, the same for all brokers, and never shown."""

import asyncio
import hashlib
import traceback
from pathlib import Path

import pytest

from cases import each_case
from controller.controllers import Coordinated, coordinated
from ottla.access.scram_client import scram
from ottla.access.scram_server import LoginRefused
from ottla.cluster.znodes import CREDENTIAL, BadNode, parse_credential
from ottla.controller.credential import (
    CLUSTER_MECHANISM,
    CLUSTER_USER,
    ClusterCredential,
    cluster_credential,
)
from ottla.settings.config_types import Secret


class Randomness:
    """The random bytes of one broker."""

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.given: list[bytes] = []

    def __call__(self, count: int) -> bytes:
        text = b"%d %d" % (self.broker, len(self.given))
        self.given.append(hashlib.shake_128(text).digest(count))
        return self.given[-1]


def can_log_in(one: ClusterCredential, other: ClusterCredential) -> bool:
    client, server = scram(CLUSTER_MECHANISM, *one.credentials, one.nonce()), other.begin_login()
    try:
        last = server.reply(client.send(server.reply(next(client))))
    except LoginRefused:
        return False
    with pytest.raises(StopIteration):
        client.send(last)
    return server.username == CLUSTER_USER


def test_brokers_that_start_together_have_the_same_credential(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        sessions = [await there.session() for _ in range(5)]
        found = await asyncio.gather(
            *(cluster_credential(one, Randomness(n)) for n, one in enumerate(sessions))
        )
        assert len({one.credentials for one in found}) == 1
        assert all(can_log_in(one, other) for one in found for other in found)
        again = await cluster_credential(await there.session(), Randomness(9))
        assert again.credentials == found[0].credentials
        assert (await sessions[0].get(CREDENTIAL)).stat.version == 0

    coordinated(tmp_path, scenario)


def test_clusters_have_different_credentials(tmp_path: Path) -> None:
    one = ClusterCredential(Secret("a" * 43), Randomness(1))
    other = ClusterCredential(Secret("b" * 43), Randomness(2))
    assert can_log_in(one, one)
    assert not can_log_in(one, other)
    assert not can_log_in(other, one)


def test_credential_has_256_random_bits(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        random = Randomness(1)
        found = await cluster_credential(await there.session(), random)
        assert [len(one) for one in random.given[:1]] == [32]
        assert len(found.credentials.password.reveal()) == 44
        nonces = {found.nonce() for _ in range(100)}
        assert len(nonces) == 100

    coordinated(tmp_path, scenario)


@each_case(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"not JSON, but hush-hush",
        b'{"version": 1, "password": ""}',
        b'{"version": 1, "password": "hush-hush"}',
        b'{"version": 1, "password": ["hush-hush"]}',
        b'{"version": 1, "password": "hush-hush"',
        b'\xff"hush-hush"',
    ],
)
def test_invalid_credential_is_refused_without_showing_it(data: bytes) -> None:
    with pytest.raises(BadNode, match=CREDENTIAL) as refused:
        parse_credential(data)
    assert "hush" not in "".join(traceback.format_exception(refused.value))


def test_credential_is_not_shown(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        found = await cluster_credential(session, Randomness(1))
        secret = found.credentials.password.reveal()
        assert secret.encode() in (await session.get(CREDENTIAL)).data
        for one in (found, found.credentials, found.login(), found.begin_login()):
            assert secret not in f"{one!r} {one}"

    coordinated(tmp_path, scenario)
