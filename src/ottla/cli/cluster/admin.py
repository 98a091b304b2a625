"""The administrator of commands on the cluster."""

from collections.abc import Iterable

from ottla import __version__
from ottla.client.admin.administration import Administration
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Versions


class ClusterAdmin(Administration, ClusterCalls):
    """Asks about the cluster, and brokers about themselves."""

    async def api_versions(
        self, brokers: Iterable[int], timeout_s: float | None = None
    ) -> Results[int, dict[int, Versions]]:
        """The versions of each API that brokers serve, by the APIs' keys."""
        question = ApiCall[int, ApiVersionsResponse, dict[int, Versions]](
            request=lambda _, terms: ApiVersionsRequest(
                client_software_name="ottla", client_software_version=__version__
            ),
            answer=ApiVersionsResponse,
            read=lambda keys, answer: dict.fromkeys(keys, served(answer)),
        )
        return await self._asking.many(self._asking.to_brokers, [*brokers], question, timeout_s)


def served(answer: ApiVersionsResponse) -> dict[int, Versions]:
    """What a broker serves."""
    check(answer.error_code, "the versions of APIs")
    return {one.api_key: Versions(one.min_version, one.max_version) for one in answer.api_keys}
