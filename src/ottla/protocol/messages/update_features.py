"""UpdateFeatures: change the finalized level of features."""

from collections.abc import Sequence

from ottla.protocol.apis import UPDATE_FEATURES
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_string,
    string,
)


class FeatureUpdateKey(Struct):
    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0", default=False)
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, api=UPDATE_FEATURES):
    timeout_ms: int = int32("0+", default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")


class UpdateFeaturesResponse(Message, api=UPDATE_FEATURES):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    results: Sequence[UpdatableFeatureResult] = array(
        UpdatableFeatureResult, "0-1", default=(), ignorable=True
    )
