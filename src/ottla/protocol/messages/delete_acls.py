"""DeleteAcls: delete the ACLs that match filters."""

from collections.abc import Sequence

from ottla.protocol.apis import DELETE_ACLS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int8, int16, int32, nullable_string, string


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = nullable_string("0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = nullable_string("0+")
    host_filter: str | None = nullable_string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsRequest(Message, api=DELETE_ACLS):
    filters: Sequence[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsFilterResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    matching_acls: Sequence[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+")


class DeleteAclsResponse(Message, api=DELETE_ACLS):
    throttle_time_ms: int = int32("0+")
    filter_results: Sequence[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+")
