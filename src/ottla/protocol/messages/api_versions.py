"""ApiVersions: the APIs, versions and features of a broker."""

from collections.abc import Sequence

from ottla.protocol.apis import API_VERSIONS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api=API_VERSIONS):
    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, api=API_VERSIONS):
    error_code: int = int16("0+")
    api_keys: Sequence[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: Sequence[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", default=(), tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: Sequence[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", default=(), tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", default=False, tag=3, ignorable=True)
