"""Who may open a connection."""

from ottla.settings.resolution import broker_config
from ottla.transport.admission import Admission, AdmissionRules


def test_the_rules_are_those_of_the_settings() -> None:
    assert AdmissionRules.of(broker_config()) == AdmissionRules()
    config = broker_config(
        overrides=(
            "max.connections=5",
            "max.connections.per.ip=3",
            "max.connections.per.ip.overrides=10.0.0.1:1, ::1:2",
            "max.connection.creation.rate=7",
        )
    )
    assert AdmissionRules.of(config) == AdmissionRules(5, 3, {"10.0.0.1": 1, "::1": 2}, 7)


def test_an_address_has_its_limit_and_leaving_makes_room() -> None:
    admission = Admission(lambda: AdmissionRules(per_address_max=2, per_address_overrides={"b": 0}))
    assert admission.enter("a", 0) is None
    assert admission.enter("a", 0) is None
    refused = admission.enter("a", 0)
    assert refused == "max.connections.per.ip=2 is reached for a"
    assert admission.enter("b", 0) is not None
    assert admission.enter("c", 0) is None
    assert admission.count == 3
    admission.leave("a")
    assert admission.enter("a", 0) is None


def test_all_connections_together_have_a_limit_that_may_change() -> None:
    limit = 1
    admission = Admission(lambda: AdmissionRules(connections_max=limit))
    assert admission.enter("a", 0) is None
    assert admission.enter("b", 0) == "max.connections=1 is reached"
    limit = 2
    assert admission.enter("b", 0) is None


def test_a_second_has_its_limit() -> None:
    admission = Admission(lambda: AdmissionRules(per_second_max=2))
    answers = [admission.enter("a", second) is None for second in (0.1, 0.5, 0.9, 1.0, 1.1, 1.2)]
    assert answers == [True, True, False, True, True, False]
