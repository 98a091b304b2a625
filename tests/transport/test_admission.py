"""Admission of connections: limits per address, per listener, per broker and per second."""

from ottla.settings.config_parser import broker_config
from ottla.transport.admission import Admission, AdmissionConfig, Refusal


def test_settings_define_the_connection_limits() -> None:
    assert AdmissionConfig.of(broker_config()) == AdmissionConfig()
    config = broker_config(
        overrides=(
            "max.connections=5",
            "max.connections.per.ip=3",
            "max.connections.per.ip.overrides=10.0.0.1:1, ::1:2",
            "max.connection.creation.rate=7",
        )
    )
    assert AdmissionConfig.of(config) == AdmissionConfig(5, 3, {"10.0.0.1": 1, "::1": 2}, 7)


def test_per_address_limit_frees_a_slot_on_leave() -> None:
    admission = Admission(
        lambda: AdmissionConfig(per_address_max=2, per_address_overrides={"b": 0})
    )
    assert admission.enter("a", 0) is None
    assert admission.enter("a", 0) is None
    refused = admission.enter("a", 0)
    assert refused == Refusal("max.connections.per.ip=2 reached for a", is_final=True)
    assert admission.enter("b", 0) is not None
    assert admission.enter("c", 0) is None
    assert admission.count == 3
    admission.leave("a")
    assert admission.enter("a", 0) is None


def test_total_connection_limit_can_change() -> None:
    limit = 1
    admission = Admission(lambda: AdmissionConfig(connections_max=limit))
    assert admission.enter("a", 0) is None
    assert admission.enter("b", 0) == Refusal("max.connections=1 reached", is_final=False)
    limit = 2
    assert admission.enter("b", 0) is None


def test_connection_rate_is_limited_per_second() -> None:
    admission = Admission(lambda: AdmissionConfig(per_second_max=2))
    answers = [admission.enter("a", second) is None for second in (0.1, 0.5, 0.9, 1.0, 1.1, 1.2)]
    assert answers == [True, True, False, True, True, False]


def test_listener_limit_applies_within_the_broker_limit() -> None:
    whole = Admission(lambda: AdmissionConfig(connections_max=3))
    own = Admission(lambda: AdmissionConfig(connections_max=2), whole)
    other = Admission(AdmissionConfig, whole)
    assert own.enter("a", 0) is None
    assert own.enter("a", 0) is None
    assert own.enter("a", 0) == Refusal("max.connections=2 reached", is_final=False)
    assert (own.count, whole.count) == (2, 2)
    assert other.enter("a", 0) is None
    assert other.enter("b", 0) == Refusal("max.connections=3 reached", is_final=False)
    assert (other.count, whole.count) == (1, 3)
    own.leave("a")
    assert (own.count, whole.count) == (1, 2)
    assert other.enter("b", 0) is None


def test_connection_refused_by_broker_is_not_counted() -> None:
    whole = Admission(lambda: AdmissionConfig(per_address_max=1))
    own = Admission(AdmissionConfig, whole)
    assert own.enter("a", 0) is None
    refused = own.enter("a", 0)
    assert refused == Refusal("max.connections.per.ip=1 reached for a", is_final=True)
    assert (own.count, whole.count) == (1, 1)


def test_listener_settings_override_broker_settings() -> None:
    config = broker_config(
        overrides=(
            "max.connections=5",
            "listener.name.plaintext.max.connections=2",
            "max.connection.creation.rate=9",
        )
    )
    assert AdmissionConfig.of_listener(config, "PLAINTEXT").connections_max == 2
    assert AdmissionConfig.of_listener(config, "PLAINTEXT").per_second_max == 9
    assert AdmissionConfig.of(config).connections_max == 5


def test_ip_override_addresses_are_normalized() -> None:
    config = broker_config(overrides=("max.connections.per.ip.overrides=[0:0::1]:2,web:3",))
    assert AdmissionConfig.of(config).per_address_overrides == {"::1": 2, "web": 3}
    assert [notice.what for notice in config.notices] == [
        '"web" has no effect: use an IP address, host names are not resolved'
    ]


def test_exempt_listener_ignores_the_connection_limit() -> None:
    rules = AdmissionConfig(connections_max=1, per_address_max=2, per_second_max=1)
    above = Admission(lambda: rules)
    own = Admission(AdmissionConfig, above, exempt=True)
    other = Admission(AdmissionConfig, above)
    assert other.enter("a", 0) is None
    assert other.enter("b", 0) is not None
    assert own.enter("b", 0) is None
    assert own.enter("b", 0) is None
    assert (above.count, above.excess) == (3, 2)
    assert own.enter("b", 0) == Refusal("max.connections.per.ip=2 reached for b", is_final=True)
    own.leave("b")
    own.leave("b")
    assert (above.count, above.excess) == (1, 0)


def test_exempt_listener_does_not_consume_the_rate() -> None:
    above = Admission(lambda: AdmissionConfig(per_second_max=1))
    assert Admission(AdmissionConfig, above, exempt=True).enter("a", 0) is None
    assert Admission(AdmissionConfig, above).enter("a", 0) is None
    assert Admission(AdmissionConfig, above).enter("a", 0) is not None
