"""ACLs: who may do what to which resource.

Invariant: a filter matches by all fields that are set; a field that is not set matches everything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.admin.calls import Calls
from ottla.client.admin.kinds import Kind
from ottla.client.admin.operations import Operation
from ottla.client.arguments import many_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check, refused
from ottla.errors import RequestError
from ottla.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class AclResource(Kind):
    """The resource type of an ACL, as on the wire."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(Kind):
    """The pattern type of a resource name, as on the wire."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """Only in filters: every ACL that applies to a resource of this name."""

    LITERAL = 3
    PREFIXED = 4


class Permission(Kind):
    """Allow or deny, as on the wire."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


@dataclass(frozen=True, slots=True)
class Acl:
    """An ACL: a principal ("User:alice") may perform an operation on a resource, from a host."""

    resource: AclResource
    name: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern: AclPattern = AclPattern.LITERAL
    host: str = "*"

    def __str__(self) -> str:
        verb = f"{self.permission.name} {self.operation.name}".lower()
        star = "*" if self.pattern is AclPattern.PREFIXED else ""
        return f"{verb} of {self.resource.name.lower()} {self.name}{star} to {self.principal}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects ACLs; None and ANY match all."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    pattern: AclPattern = AclPattern.ANY
    host: str | None = None

    def __str__(self) -> str:
        return f"ACLs on {self.resource.name.lower()} {self.name or '*'}"


class AclCalls(Calls):
    """Calls about ACLs."""

    async def create_acls(
        self, acls: Iterable[Acl], *, timeout_s: float | None = None
    ) -> Results[Acl, None]:
        """Create ACLs."""
        rules = many_of(acls, Acl, "a list of ACLs such as [Acl(AclResource.TOPIC, …)]")
        question = ApiCall(
            request=lambda keys, _: create_request(keys),
            answer=CreateAclsResponse,
            read=created,
        )
        return await self._asking.many(self._asking.to_controller, rules, question, timeout_s)

    async def describe_acls(
        self, matching: AclFilter | None = None, *, timeout_s: float | None = None
    ) -> tuple[Acl, ...]:
        """Return all ACLs, or those that match."""
        return await self._asking.one(
            self._asking.to_any,
            lambda _: describe_request(matching or AclFilter()),
            DescribeAclsResponse,
            described,
            timeout_s,
        )

    async def delete_acls(
        self, matching: Iterable[AclFilter], *, timeout_s: float | None = None
    ) -> Results[AclFilter, Results[Acl, None]]:
        """Delete the matching ACLs and return them."""
        filters = many_of(
            matching, AclFilter, 'a list of filters such as [AclFilter(name="orders")]'
        )
        question = ApiCall[AclFilter, DeleteAclsResponse, Results[Acl, None]](
            request=lambda keys, _: delete_request(keys),
            answer=DeleteAclsResponse,
            read=deleted,
        )
        return await self._asking.many(self._asking.to_controller, filters, question, timeout_s)


def create_request(acls: Iterable[Acl]) -> CreateAclsRequest:
    """Build CreateAcls."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=one.resource,
                resource_name=one.name,
                resource_pattern_type=one.pattern,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in acls
        ]
    )


def created(keys: Sequence[Acl], answer: CreateAclsResponse) -> dict[Acl, RequestError | None]:
    """Return the result of each ACL; results are in request order."""
    return {
        key: refused(one.error_code, key, one.error_message)
        for key, one in zip(keys, answer.results, strict=False)
    }


def describe_request(matching: AclFilter) -> DescribeAclsRequest:
    """Build DescribeAcls."""
    return DescribeAclsRequest(**_filter(matching))


def described(answer: DescribeAclsResponse) -> tuple[Acl, ...]:
    """Return the ACLs."""
    check(answer.error_code, "rules of access", answer.error_message)
    return tuple(_rule(about, one) for about in answer.resources for one in about.acls)


def _rule(
    about: DescribeAclsResource | DeleteAclsMatchingAcl,
    told: AclDescription | DeleteAclsMatchingAcl,
) -> Acl:
    return Acl(
        AclResource(about.resource_type),
        about.resource_name,
        told.principal,
        Operation(told.operation),
        Permission(told.permission_type),
        AclPattern(about.pattern_type),
        told.host,
    )


def delete_request(filters: Iterable[AclFilter]) -> DeleteAclsRequest:
    """Build DeleteAcls."""
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(one)) for one in filters])


def _filter(matching: AclFilter) -> dict[str, Any]:
    """Return a filter's wire fields, which are the same in both requests."""
    return {
        "resource_type_filter": matching.resource,
        "resource_name_filter": matching.name,
        "pattern_type_filter": matching.pattern,
        "principal_filter": matching.principal,
        "host_filter": matching.host,
        "operation": matching.operation,
        "permission_type": matching.permission,
    }


def deleted(
    keys: Sequence[AclFilter], answer: DeleteAclsResponse
) -> dict[AclFilter, Results[Acl, None] | RequestError]:
    """Return the ACLs that each filter matched; results are in request order."""
    return {
        key: refused(one.error_code, key, one.error_message) or _matched(one)
        for key, one in zip(keys, answer.filter_results, strict=False)
    }


def _matched(told: DeleteAclsFilterResult) -> Results[Acl, None]:
    return Results[Acl, None](
        {
            (rule := _rule(one, one)): refused(one.error_code, rule, one.error_message)
            for one in told.matching_acls
        }
    )
