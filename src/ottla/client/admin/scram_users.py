"""SCRAM users (RFC 5802): describe, set and remove credentials.

Invariant: a password never leaves the client; it sends a salted hash.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import pbkdf2_hmac
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.admin.kinds import Kind
from ottla.client.arguments import many_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check, refused
from ottla.client.partitions import names
from ottla.errors import RequestError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

ITERATIONS: Final = 8192
"""Brokers accept 4096 to 16384; every login costs client and broker that many iterations."""

SALT_BYTES: Final = 24


class ScramMechanism(Kind):
    """The hash, as on the wire."""

    UNKNOWN = 0
    SHA_256 = 1
    SHA_512 = 2


_HASHES: Final = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's credential without the secret."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramPassword:
    """A password to set for a user and mechanism."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SHA_512
    iterations: int = ITERATIONS

    def __post_init__(self) -> None:
        if self.mechanism not in _HASHES:
            raise ValueError(f"invalid mechanism {self.mechanism.name}: use SHA_256 or SHA_512")


@dataclass(frozen=True, slots=True)
class ScramRemoval:
    """A credential to remove from a user."""

    user: str
    mechanism: ScramMechanism


class ScramUserCalls(Calls):
    """Calls about SCRAM users."""

    _random_bytes: Callable[[int], bytes]

    async def describe_scram_users(
        self, users: str | Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> Results[str, tuple[ScramCredential, ...]]:
        """Return the credentials of some users, or of all that have any."""
        wanted = None if users is None else names(users)
        told = await self._asking.one(
            self._asking.to_controller,
            lambda _: describe_request(wanted),
            DescribeUserScramCredentialsResponse,
            described,
            timeout_s,
        )
        return Results({user: told[user] for user in wanted or sorted(told) if user in told})

    async def alter_scram_users(
        self,
        changes: Iterable[ScramPassword | ScramRemoval],
        *,
        timeout_s: float | None = None,
    ) -> Results[str, None]:
        """Set and remove credentials; a user's changes are applied in order until one fails.

        A broker accepts one change per user and request, so several changes need several requests.
        """
        asking = self._asking
        deadline_s = asking.deadline_s(timeout_s)
        left: dict[str, list[ScramPassword | ScramRemoval]] = {}
        form = 'a list of changes such as [ScramPassword("ann", "secret")]'
        for change in many_of(changes, (ScramPassword, ScramRemoval), form):
            left.setdefault(change.user, []).append(change)
        told: dict[str, RequestError | None] = dict.fromkeys(left)
        while left:
            failed = await self._alter_each(
                {user: ones.pop(0) for user, ones in left.items()}, asking.left_s(deadline_s)
            )
            told |= failed
            left = {user: ones for user, ones in left.items() if ones and user not in failed}
        return Results[str, None](told)

    async def _alter_each(
        self, changes: Mapping[str, ScramPassword | ScramRemoval], timeout_s: float
    ) -> Mapping[str, RequestError]:
        """Send one change per user; returns the failures."""
        question = ApiCall(
            request=lambda keys, _: alter_request(
                [changes[key] for key in keys], self._random_bytes
            ),
            answer=AlterUserScramCredentialsResponse,
            read=lambda _, answer: altered(answer),
        )
        route = self._asking.to_controller
        return (await self._asking.many(route, changes, question, timeout_s)).failed


def salted(password: ScramPassword, salt: bytes) -> bytes:
    """Return the salted password of RFC 5802, section 3."""
    secret = password.password.encode()
    return pbkdf2_hmac(_HASHES[password.mechanism], secret, salt, password.iterations)


def describe_request(users: Sequence[str] | None) -> DescribeUserScramCredentialsRequest:
    """Build DescribeUserScramCredentials."""
    return DescribeUserScramCredentialsRequest(
        users=None if users is None else [UserName(name=user) for user in users]
    )


def described(
    answer: DescribeUserScramCredentialsResponse,
) -> dict[str, tuple[ScramCredential, ...] | RequestError]:
    """Return the credentials of each user."""
    check(answer.error_code, "users", answer.error_message)
    return {
        one.user: refused(one.error_code, one.user, one.error_message)
        or tuple(
            ScramCredential(ScramMechanism(info.mechanism), info.iterations)
            for info in one.credential_infos
        )
        for one in answer.results
    }


def alter_request(
    changes: Iterable[ScramPassword | ScramRemoval], random_bytes: Callable[[int], bytes]
) -> AlterUserScramCredentialsRequest:
    """Build AlterUserScramCredentials."""
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []
    for one in changes:
        if isinstance(one, ScramRemoval):
            deletions.append(ScramCredentialDeletion(name=one.user, mechanism=one.mechanism))
        else:
            salt = random_bytes(SALT_BYTES)
            upsertions.append(
                ScramCredentialUpsertion(
                    name=one.user,
                    mechanism=one.mechanism,
                    iterations=one.iterations,
                    salt=salt,
                    salted_password=salted(one, salt),
                )
            )
    return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)


def altered(answer: AlterUserScramCredentialsResponse) -> dict[str, RequestError | None]:
    """Return the result of each user."""
    return {
        one.user: refused(one.error_code, one.user, one.error_message) for one in answer.results
    }
