"""CreateAcls: allow or deny operations of principals."""

from collections.abc import Sequence

from ottla.protocol.apis import CREATE_ACLS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int8, int16, int32, nullable_string, string


class AclCreation(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class CreateAclsRequest(Message, api=CREATE_ACLS):
    creations: Sequence[AclCreation] = array(AclCreation, "0+")


class AclCreationResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")


class CreateAclsResponse(Message, api=CREATE_ACLS):
    throttle_time_ms: int = int32("0+")
    results: Sequence[AclCreationResult] = array(AclCreationResult, "0+")
