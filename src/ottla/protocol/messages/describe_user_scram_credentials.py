"""DescribeUserScramCredentials: the SCRAM mechanisms of users, without secrets."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_USER_SCRAM_CREDENTIALS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class UserName(Struct):
    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Message, api=DESCRIBE_USER_SCRAM_CREDENTIALS):
    users: Sequence[UserName] | None = nullable_array(UserName, "0+")


class CredentialInfo(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


class DescribeUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    credential_infos: Sequence[CredentialInfo] = array(CredentialInfo, "0+")


class DescribeUserScramCredentialsResponse(Message, api=DESCRIBE_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    results: Sequence[DescribeUserScramCredentialsResult] = array(
        DescribeUserScramCredentialsResult, "0+"
    )
