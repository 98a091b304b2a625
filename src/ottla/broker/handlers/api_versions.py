"""ApiVersions: the APIs and versions that this broker serves."""

import re
from collections.abc import Mapping
from typing import Final

from ottla.errors import ErrorCode
from ottla.protocol.apis import API_OF_KEY, API_VERSIONS
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from ottla.protocol.schema import Versions
from ottla.transport.connection import Connection

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # KIP-511


def handle(
    request: Request,
    connection: Connection,
    *,
    served: Mapping[int, Versions],
    served_to_brokers: Mapping[int, Versions],
) -> Response:
    """Return the versions; a request in a newer version gets the range of ApiVersions only.

    A broker of the cluster asks again after its login, and gets the APIs between brokers, too.
    """
    if request.refused is not ErrorCode.NONE:
        ours = API_VERSIONS.advertised
        known = ApiVersion(api_key=API_VERSIONS.key, min_version=ours.low, max_version=ours.high)
        return ApiVersionsResponse(error_code=int(request.refused), api_keys=[known])
    message = request.message
    assert isinstance(message, ApiVersionsRequest)
    if request.version >= 3:
        software = (message.client_software_name, message.client_software_version)
        if not all(_SOFTWARE.fullmatch(word) for word in software):
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST), api_keys=[])
        connection.software = software
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(
                api_key=key,
                min_version=API_OF_KEY[key].advertised.low,
                max_version=min(versions.high, API_OF_KEY[key].advertised.high),
            )
            for key, versions in sorted(
                (served_to_brokers if connection.is_broker else served).items()
            )
        ],
    )
