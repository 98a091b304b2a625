"""AlterUserScramCredentials: set or remove the SCRAM credentials of users."""

from collections.abc import Sequence

from ottla.protocol.apis import ALTER_USER_SCRAM_CREDENTIALS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int8, int16, int32, nullable_string, octets, string


class ScramCredentialDeletion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = octets("0+")
    salted_password: bytes = octets("0+")


class AlterUserScramCredentialsRequest(Message, api=ALTER_USER_SCRAM_CREDENTIALS):
    deletions: Sequence[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: Sequence[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")


class AlterUserScramCredentialsResponse(Message, api=ALTER_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: int = int32("0+")
    results: Sequence[AlterUserScramCredentialsResult] = array(
        AlterUserScramCredentialsResult, "0+"
    )
