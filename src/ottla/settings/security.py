# ruff: noqa: E501 - one line per row
"""TLS and SASL: the settings that brokers and clients share.

Invariant: certificates and keys are PEM, and no value names a class to load. A broker can set each
row per listener, as listener.name.<listener>.<setting>.
"""

from typing import Final

from ottla.settings.config_def import PER_BROKER, Setting, settings_in
from ottla.settings.config_types import BOOLEAN, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING
from ottla.settings.validators import between, matching, one_of, some_of

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Kafka also accepts file://, which allows a client to be tricked into reading any file
# (CVE-2025-27817).
_ADDRESS: Final = matching(r"https?://\S+", "https://...")
# Python cannot read Java key stores.
_CONVERT: Final = (
    "convert JKS to PKCS12 with `keytool -importkeystore -srckeystore store.jks -destkeystore "
    "store.p12 -deststoretype PKCS12`, and PKCS12 to PEM with `openssl pkcs12 -in store.p12 -out store.pem`"
)

# fmt: off
# TLS: key and certificate.
SSL_KEYSTORE_LOCATION = Setting("ssl.keystore.location", STRING, None, dynamic=PER_BROKER, per_listener=True,
    doc="PEM file with the private key, followed by the certificate chain. A broker requires it for TLS "
        "listeners, a client only if the broker requests a client certificate.")
SSL_KEYSTORE_TYPE = Setting("ssl.keystore.type", STRING, "PEM", one_of("PEM", any_case=True, otherwise=_CONVERT), dynamic=PER_BROKER, per_listener=True, kafka_default="JKS",
    doc="Key store format. Ottla supports PEM only; convert others with `openssl pkcs12 -in store.p12 -out "
        "store.pem`.")
SSL_KEYSTORE_KEY = Setting("ssl.keystore.key", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="Private key as PEM text (PKCS#8), instead of a file.")
SSL_KEYSTORE_CERTIFICATE_CHAIN = Setting("ssl.keystore.certificate.chain", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="Certificate of ssl.keystore.key as PEM text, followed by its chain.")
SSL_KEY_PASSWORD = Setting("ssl.key.password", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="Password of an encrypted private key.")
# TLS: trusted certificates and protocol.
SSL_TRUSTSTORE_LOCATION = Setting("ssl.truststore.location", STRING, None, dynamic=PER_BROKER, per_listener=True,
    doc="PEM file with the trusted CA certificates. Without it a client uses the CA certificates of the "
        "operating system.")
SSL_TRUSTSTORE_TYPE = Setting("ssl.truststore.type", STRING, "PEM", one_of("PEM", any_case=True, otherwise=_CONVERT), dynamic=PER_BROKER, per_listener=True, kafka_default="JKS",
    doc="Trust store format. Ottla supports PEM only.")
SSL_TRUSTSTORE_CERTIFICATES = Setting("ssl.truststore.certificates", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="Trusted CA certificates as PEM text, instead of a file.")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = Setting("ssl.endpoint.identification.algorithm", STRING, "https", one_of("https", "", any_case=True), dynamic=PER_BROKER, per_listener=True,
    doc="`https` verifies the server's host name against its certificate. Empty disables it, which allows "
        "man-in-the-middle attacks; disable it in tests only.")
SSL_ENABLED_PROTOCOLS = Setting("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), some_of("TLSv1.2", "TLSv1.3", empty_allowed=False), dynamic=PER_BROKER, per_listener=True,
    doc="Enabled TLS versions. Both sides use the newest version they share. Versions before 1.2 are insecure "
        "and not supported.")
SSL_CIPHER_SUITES = Setting("ssl.cipher.suites", LIST, (), dynamic=PER_BROKER, per_listener=True,
    doc="Enabled cipher suites, by OpenSSL or IANA name. Empty means the defaults of OpenSSL; set it only if a "
        "policy requires it.")
# SASL.
SASL_JAAS_CONFIG = Setting("sasl.jaas.config", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc='Credentials in JAAS format: `…PlainLoginModule required username="u" password="p";`, or with '
        "ScramLoginModule. Ottla reads the user name and the password and ignores the class.")
SASL_LOGIN_CONNECT_TIMEOUT_MS = Setting("sasl.login.connect.timeout.ms", INT, None,
    doc="Connection timeout of the OAUTHBEARER token endpoint in milliseconds; null means no timeout.", per_listener=True)
SASL_LOGIN_READ_TIMEOUT_MS = Setting("sasl.login.read.timeout.ms", INT, None,
    doc="Read timeout of the token endpoint in milliseconds; null means no timeout.", per_listener=True)
SASL_LOGIN_RETRY_BACKOFF_MS = Setting("sasl.login.retry.backoff.ms", LONG, 100, per_listener=True,
    doc="Time in milliseconds before the token endpoint is retried. It doubles with each failure.")
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = Setting("sasl.login.retry.backoff.max.ms", LONG, 10_000, per_listener=True,
    doc="Maximum time in milliseconds between two attempts at the token endpoint.")
SASL_LOGIN_REFRESH_WINDOW_FACTOR = Setting("sasl.login.refresh.window.factor", DOUBLE, 0.8, between(0.5, 1.0), dynamic=PER_BROKER, per_listener=True,
    doc="Fraction of a token's lifetime after which the client refreshes it.")
SASL_LOGIN_REFRESH_WINDOW_JITTER = Setting("sasl.login.refresh.window.jitter", DOUBLE, 0.05, between(0.0, 0.25), dynamic=PER_BROKER, per_listener=True,
    doc="Maximum random fraction of a token's lifetime that is added to the refresh time, so that clients do not "
        "refresh at once.")
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = Setting("sasl.login.refresh.min.period.seconds", SHORT, 60, between(0, 900), dynamic=PER_BROKER, per_listener=True,
    doc="Minimum time in seconds between two token refreshes. It is ignored if it and "
        "sasl.login.refresh.buffer.seconds together exceed the token's lifetime.")
SASL_LOGIN_REFRESH_BUFFER_SECONDS = Setting("sasl.login.refresh.buffer.seconds", SHORT, 300, between(0, 3600), dynamic=PER_BROKER, per_listener=True,
    doc="Time in seconds before a token expires at which the client refreshes it at the latest.")
# OAUTHBEARER: token retrieval and validation.
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = Setting("sasl.oauthbearer.token.endpoint.url", STRING, None, _ADDRESS, per_listener=True,
    doc="HTTPS URL of the token endpoint of the OAuth provider.")
SASL_OAUTHBEARER_SCOPE = Setting("sasl.oauthbearer.scope", STRING, None, per_listener=True,
    doc="Scope to request from the token endpoint, if the provider requires one.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID = Setting("sasl.oauthbearer.client.credentials.client.id", STRING, None, per_listener=True,
    doc="Client id for the token endpoint (client credentials grant).")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET = Setting("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, per_listener=True,
    doc="Client secret for the token endpoint (client credentials grant).")
SASL_OAUTHBEARER_ASSERTION_FILE = Setting("sasl.oauthbearer.assertion.file", STRING, None, per_listener=True,
    doc="File with a signed assertion (JWT) that is exchanged for a token, instead of client id and secret. It "
        "is read for each token, so another process can renew it.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = Setting("sasl.oauthbearer.jwks.endpoint.url", STRING, None, _ADDRESS, per_listener=True,
    doc="HTTPS URL of the provider's public keys (JWKS). Without keys a broker rejects all tokens.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = Setting("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, per_listener=True,
    doc="Interval in milliseconds between refreshes of the provider's keys.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, per_listener=True,
    doc="Time in milliseconds before the JWKS endpoint is retried. It doubles with each failure.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, per_listener=True,
    doc="Maximum time in milliseconds between two attempts at the JWKS endpoint.")
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = Setting("sasl.oauthbearer.clock.skew.seconds", INT, 30, per_listener=True,
    doc="Allowed clock difference in seconds between the provider and the broker when token times are checked.")
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = Setting("sasl.oauthbearer.expected.audience", LIST, (), per_listener=True,
    doc="Accepted audiences of a token; empty disables the check.")
SASL_OAUTHBEARER_EXPECTED_ISSUER = Setting("sasl.oauthbearer.expected.issuer", STRING, None, per_listener=True,
    doc="Accepted issuer of a token; null disables the check. Set it together with the audience.")
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = Setting("sasl.oauthbearer.scope.claim.name", STRING, "scope", per_listener=True,
    doc="Claim of the token that contains the scope, if the provider does not use `scope`.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME = Setting("sasl.oauthbearer.sub.claim.name", STRING, "sub", per_listener=True,
    doc="Claim of the token that contains the principal, if the provider does not use `sub`.")
# fmt: on

ROWS: Final = settings_in(globals())

# fmt: off
SASL_OAUTHBEARER_HEADER_URLENCODE = Setting("sasl.oauthbearer.header.urlencode", BOOLEAN, False,
    doc="URL-encode client id and secret in the Authorization header (RFC 6749). Enable it if the provider "
        "rejects credentials with special characters.")
SASL_USERNAME = Setting("sasl.username", STRING, None,
    doc="User name for PLAIN or SCRAM, instead of sasl.jaas.config. A setting of librdkafka; Kafka's Java "
        "clients do not have it.")
SASL_PASSWORD = Setting("sasl.password", PASSWORD, None,
    doc="Password of sasl.username for PLAIN or SCRAM.")
SASL_MECHANISM = Setting("sasl.mechanism", STRING, None, one_of(*MECHANISMS, any_case=True), kafka_default="GSSAPI",
    doc="SASL mechanism. Required if security.protocol is SASL_PLAINTEXT or SASL_SSL. SCRAM-SHA-512 never sends "
        "the password. Kafka's default is GSSAPI (Kerberos), which Ottla does not support.")
SECURITY_PROTOCOL = Setting("security.protocol", STRING, "PLAINTEXT", one_of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", any_case=True),
    doc="Protocol of connections: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. Use SASL_SSL on untrusted "
        "networks.")
# fmt: on
