"""Features: what brokers support and which level the cluster has finalized.

Invariant: a change names its kind: upgrade, safe downgrade or unsafe downgrade.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.client.admin.calls import Calls
from ottla.client.arguments import mapping_of
from ottla.client.calls.caller import ApiCall, Terms
from ottla.client.calls.results import Results, check, or_none, refused
from ottla.errors import RequestError
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_FEATURES_SINCE: Final = 3  # the first version of ApiVersions with features
_KINDS_SINCE: Final = 1  # the first version of UpdateFeatures with two kinds of downgrade


class Levels(NamedTuple):
    """A range of levels, both ends included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster."""

    supported: Mapping[str, Levels]
    """The levels that the broker supports."""

    finalized: Mapping[str, Levels]
    """The levels that the cluster has finalized."""

    epoch: int | None
    """Increases with every change of the finalized levels."""


class FeatureChange(IntEnum):
    """The kind of a change, as on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """Data written by the higher level may be lost."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature; 0 disables it."""

    level: int
    change: FeatureChange = FeatureChange.UPGRADE


class FeatureCalls(Calls):
    """Calls about features."""

    async def describe_features(
        self, *, broker: int | None = None, timeout_s: float | None = None
    ) -> Features:
        """Return the finalized levels and those that a broker, or any, supports."""
        asking = self._asking
        return await asking.one(
            asking.to_any if broker is None else asking.to_one(broker),
            lambda _: ApiVersionsRequest(
                client_software_name="ottla", client_software_version="admin"
            ),
            ApiVersionsResponse,
            described,
            timeout_s,
            since=_FEATURES_SINCE,
        )

    async def update_features(
        self,
        updates: Mapping[str, int | FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Results[str, None]:
        """Change finalized levels; Kafka since 4.0 applies all changes or none."""
        mapping_of(updates, str, 'a mapping of features such as {"group.version": 1}')
        wanted = {
            name: FeatureUpdate(one) if isinstance(one, int) else one
            for name, one in updates.items()
        }
        is_new = validate_only or any(
            one.change is FeatureChange.SAFE_DOWNGRADE for one in wanted.values()
        )
        question = ApiCall(
            request=lambda keys, terms: update_request(
                {key: wanted[key] for key in keys}, terms, validate_only=validate_only
            ),
            answer=UpdateFeaturesResponse,
            read=updated,
            since=_KINDS_SINCE if is_new else 0,
        )
        return await self._asking.many(self._asking.to_controller, wanted, question, timeout_s)


def described(answer: ApiVersionsResponse) -> Features:
    """Return the features."""
    check(answer.error_code, "features")
    return Features(
        {one.name: Levels(one.min_version, one.max_version) for one in answer.supported_features},
        {
            one.name: Levels(one.min_version_level, one.max_version_level)
            for one in answer.finalized_features
        },
        or_none(answer.finalized_features_epoch),
    )


def update_request(
    updates: Mapping[str, FeatureUpdate], terms: Terms, *, validate_only: bool
) -> UpdateFeaturesRequest:
    """Build UpdateFeatures."""
    return UpdateFeaturesRequest(
        timeout_ms=terms.timeout_ms,
        feature_updates=[*_updates(updates, terms.version)],
        validate_only=validate_only,
    )


def _updates(updates: Mapping[str, FeatureUpdate], version: int) -> Iterable[FeatureUpdateKey]:
    for name, one in updates.items():
        if version >= _KINDS_SINCE:
            yield FeatureUpdateKey(
                feature=name, max_version_level=one.level, upgrade_type=one.change
            )
        else:
            yield FeatureUpdateKey(
                feature=name,
                max_version_level=one.level,
                allow_downgrade=one.change is not FeatureChange.UPGRADE,
            )


def updated(keys: Sequence[str], answer: UpdateFeaturesResponse) -> dict[str, RequestError | None]:
    """Return the result of each feature; newer brokers report only all together."""
    check(answer.error_code, None, answer.error_message)
    told: dict[str, RequestError | None] = dict.fromkeys(keys)
    for one in answer.results:
        told[one.feature] = refused(one.error_code, one.feature, one.error_message)
    return told
