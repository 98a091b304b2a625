"""DescribeAcls: the ACLs that match a filter."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_ACLS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int8, int16, int32, nullable_string, string


class DescribeAclsRequest(Message, api=DESCRIBE_ACLS):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = nullable_string("0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = nullable_string("0+")
    host_filter: str | None = nullable_string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class AclDescription(Struct):
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DescribeAclsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: Sequence[AclDescription] = array(AclDescription, "0+")


class DescribeAclsResponse(Message, api=DESCRIBE_ACLS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    resources: Sequence[DescribeAclsResource] = array(DescribeAclsResource, "0+")
