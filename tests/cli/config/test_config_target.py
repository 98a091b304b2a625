"""The resource that options of `ottla config` name."""

import pytest

from cases import each_case
from ottla.cli.config.target import Said, quotas_of
from ottla.cli.failures import Misused
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.quotas import Quota, QuotaEntity


@each_case(
    ("said", "target"),
    [
        (Said(topic="t"), ConfigResource.topic("t")),
        (Said(broker=0), ConfigResource.broker(0)),
        (Said(broker_defaults=True), ConfigResource.broker(None)),
        (Said(group="g"), ConfigResource.group("g")),
        (Said(user="u"), QuotaEntity(user="u")),
        (Said(user="u", client_id="c"), QuotaEntity(user="u", client_id="c")),
        (
            Said(user_defaults=True, client_id_defaults=True),
            QuotaEntity(Quota.DEFAULT, Quota.DEFAULT),
        ),
        (Said(ip="1.2.3.4"), QuotaEntity(ip="1.2.3.4")),
        (Said(ip_defaults=True), QuotaEntity(ip=Quota.DEFAULT)),
    ],
)
def test_options_name_one_resource(said: Said, target: object) -> None:
    assert said.target() == target


@each_case(
    "said",
    [
        Said(),
        Said(topic="t", broker=1),
        Said(topic="t", user="u"),
        Said(user="u", ip="1.2.3.4"),
        Said(broker=1, broker_defaults=True),
        Said(user="u", user_defaults=True),
    ],
)
def test_no_resource_or_several_are_refused(said: Said) -> None:
    with pytest.raises(Misused):
        said.target()


def test_quota_must_be_a_number() -> None:
    assert quotas_of({"producer_byte_rate": "1e6"}) == {"producer_byte_rate": 1e6}
    with pytest.raises(Misused, match="producer_byte_rate=fast: a quota must be a number"):
        quotas_of({"producer_byte_rate": "fast"})
