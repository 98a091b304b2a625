"""Credentials of a client from sasl.jaas.config or from username and password."""

import pytest

from cases import each_case
from ottla.settings.config import Config
from ottla.settings.config_parser import client_config
from ottla.settings.config_types import Secret
from ottla.settings.credentials import Credentials, credentials
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.producer import PRODUCER

JAAS = 'a.b.ScramLoginModule required username="u" password="hunter2";'


def config(**arguments: object) -> Config:
    return client_config(
        PRODUCER, bootstrap_servers="a:1", security_protocol="SASL_PLAINTEXT", **arguments
    )


@each_case(
    "given",
    [{"sasl_username": "u", "sasl_password": "hunter2"}, {"sasl_jaas_config": JAAS}],
    ids=["settings", "jaas"],
)
@each_case("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_credentials_from_jaas_and_settings_are_equal(
    given: dict[str, object], mechanism: str
) -> None:
    found = credentials(config(sasl_mechanism=mechanism, **given))
    assert found == Credentials("u", Secret("hunter2"))
    assert "hunter2" not in repr(found)


def test_oauthbearer_requires_no_password() -> None:
    assert credentials(config(sasl_mechanism="OAUTHBEARER")) is None


@each_case(
    ("given", "what"),
    [
        ({}, "sasl.username: required, because security.protocol is SASL_PLAINTEXT"),
        ({"sasl_username": "u"}, "sasl.username: requires sasl.password"),
        ({"sasl_password": "hunter2"}, "sasl.password: requires sasl.username"),
        ({"sasl_username": "", "sasl_password": "hunter2"}, "sasl.username: required"),
        (
            {"sasl_username": "u", "sasl_password": "hunter2", "sasl_jaas_config": JAAS},
            "sasl.username: conflicts with sasl.jaas.config",
        ),
        ({"sasl_jaas_config": "hunter2"}, "sasl.jaas.config: invalid value (does not begin"),
        (
            {"sasl_jaas_config": "M required password=hunter2;"},
            "sasl.jaas.config: no username and password",
        ),
    ],
)
def test_missing_or_conflicting_credentials(given: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidSettings) as told:
        config(sasl_mechanism="PLAIN", **given)
    assert what in str(told.value)
    assert "hunter2" not in str(told.value)
    assert "hunter2" not in repr(told.value)


@each_case("kind", ["JKS", "PKCS12"])
def test_java_key_store_error_explains_conversion(kind: str) -> None:
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        with pytest.raises(InvalidSettings, match=r"keytool -importkeystore .*openssl pkcs12 -in"):
            client_config(PRODUCER, {"bootstrap.servers": "a:1", name: kind})
