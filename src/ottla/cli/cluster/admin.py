"""Admin client for the cluster."""

from collections.abc import Iterable

from ottla import __version__
from ottla.client.admin.administration import Administration
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Versions


class ClusterAdmin(Administration, ClusterCalls):
    """Describes the cluster and its brokers."""

    async def api_versions(
        self, brokers: Iterable[int], timeout_s: float | None = None
    ) -> Results[int, dict[int, Versions]]:
        """Return the API versions that brokers serve, by API key."""
        question = ApiCall[int, ApiVersionsResponse, dict[int, Versions]](
            request=lambda _, terms: ApiVersionsRequest(
                client_software_name="ottla", client_software_version=__version__
            ),
            answer=ApiVersionsResponse,
            read=lambda keys, answer: dict.fromkeys(keys, served(answer)),
        )
        return await self._asking.many(self._asking.to_brokers, [*brokers], question, timeout_s)


def served(answer: ApiVersionsResponse) -> dict[int, Versions]:
    """Return the versions in a response."""
    check(answer.error_code, "the versions of APIs")
    return {one.api_key: Versions(one.min_version, one.max_version) for one in answer.api_keys}
