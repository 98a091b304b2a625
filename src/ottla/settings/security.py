# ruff: noqa: E501 - a row reads best with its facts on one line.
"""TLS and SASL: the settings that brokers and clients share.

Invariant: certificates and keys are PEM, and no value names code to load. On a broker every row
can be given for one listener alone, as listener.name.<listener>.<setting>.
"""

from typing import Final

from ottla.settings.config_def import PER_BROKER, Setting, settings_in
from ottla.settings.config_types import BOOLEAN, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING
from ottla.settings.validators import between, matching, one_of, some_of

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Kafka also takes file://, by which a client can be made to read any file (CVE-2025-27817).
_ADDRESS: Final = matching(r"https?://\S+", "https://...")
# Python cannot read the stores of Java.
_CONVERT: Final = (
    "a JKS store becomes PKCS12 by `keytool -importkeystore -srckeystore store.jks -destkeystore "
    "store.p12 -deststoretype PKCS12`, and that PEM by `openssl pkcs12 -in store.p12 -out store.pem`"
)

# fmt: off
# TLS: who we are.
SSL_KEYSTORE_LOCATION = Setting("ssl.keystore.location", STRING, None, dynamic=PER_BROKER, per_listener=True,
    doc="A PEM file with the private key and, after it, the certificate with its chain. A broker needs "
        "one for every TLS listener, a client only where the broker asks for its certificate.")
SSL_KEYSTORE_TYPE = Setting("ssl.keystore.type", STRING, "PEM", one_of("PEM", any_case=True, otherwise=_CONVERT), dynamic=PER_BROKER, per_listener=True, kafka_default="JKS",
    doc="The format of the key store. Ottla reads PEM alone; `openssl pkcs12 -in store.p12 -out store.pem` "
        "converts the others.")
SSL_KEYSTORE_KEY = Setting("ssl.keystore.key", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="The private key itself, as PEM text in PKCS#8, in place of a file.")
SSL_KEYSTORE_CERTIFICATE_CHAIN = Setting("ssl.keystore.certificate.chain", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="The certificate that belongs to ssl.keystore.key, as PEM text, followed by the certificates "
        "that signed it.")
SSL_KEY_PASSWORD = Setting("ssl.key.password", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="Opens the private key when it is encrypted.")
# TLS: whom we trust.
SSL_TRUSTSTORE_LOCATION = Setting("ssl.truststore.location", STRING, None, dynamic=PER_BROKER, per_listener=True,
    doc="A PEM file with the certificates of the authorities to trust. Without one a client trusts the "
        "authorities of its operating system.")
SSL_TRUSTSTORE_TYPE = Setting("ssl.truststore.type", STRING, "PEM", one_of("PEM", any_case=True, otherwise=_CONVERT), dynamic=PER_BROKER, per_listener=True, kafka_default="JKS",
    doc="The format of the trust store. Ottla reads PEM alone.")
SSL_TRUSTSTORE_CERTIFICATES = Setting("ssl.truststore.certificates", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="The trusted certificates themselves, as PEM text, in place of a file.")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = Setting("ssl.endpoint.identification.algorithm", STRING, "https", one_of("https", "", any_case=True), dynamic=PER_BROKER, per_listener=True,
    doc="`https` compares the host name with the server's certificate; empty skips that, which lets "
        "anyone with a trusted certificate pose as the server. Leave it on outside of tests.")
SSL_ENABLED_PROTOCOLS = Setting("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), some_of("TLSv1.2", "TLSv1.3", empty_allowed=False), dynamic=PER_BROKER, per_listener=True,
    doc="The versions of TLS that a handshake may settle on; the newest one both sides know is used. "
        "Versions before 1.2 are broken and not offered.")
SSL_CIPHER_SUITES = Setting("ssl.cipher.suites", LIST, (), dynamic=PER_BROKER, per_listener=True,
    doc="The cipher suites a handshake may settle on, by their OpenSSL or IANA names. Empty takes "
        "OpenSSL's own choice, which is right unless a policy demands a list.")
# SASL: who logs in, and as whom.
SASL_JAAS_CONFIG = Setting("sasl.jaas.config", PASSWORD, None, dynamic=PER_BROKER, per_listener=True,
    doc="Credentials as Java clients write them: `…PlainLoginModule required username=\"u\" "
        "password=\"p\";` or the same with ScramLoginModule. Ottla reads user name and password out of "
        "it and ignores the class; nothing is loaded.")
SASL_LOGIN_CONNECT_TIMEOUT_MS = Setting("sasl.login.connect.timeout.ms", INT, None,
    doc="Milliseconds to wait for a connection to the OAUTHBEARER token endpoint; null waits without "
        "a limit of its own.", per_listener=True)
SASL_LOGIN_READ_TIMEOUT_MS = Setting("sasl.login.read.timeout.ms", INT, None,
    doc="Milliseconds to wait for the token endpoint's answer; null waits without a limit of its own.", per_listener=True)
SASL_LOGIN_RETRY_BACKOFF_MS = Setting("sasl.login.retry.backoff.ms", LONG, 100, per_listener=True,
    doc="Milliseconds before the token endpoint is asked again after a failure; doubled each time.")
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = Setting("sasl.login.retry.backoff.max.ms", LONG, 10_000, per_listener=True,
    doc="The longest pause, in milliseconds, between two tries at the token endpoint.")
SASL_LOGIN_REFRESH_WINDOW_FACTOR = Setting("sasl.login.refresh.window.factor", DOUBLE, 0.8, between(0.5, 1.0), dynamic=PER_BROKER, per_listener=True,
    doc="The share of a token's life after which a new one is fetched.")
SASL_LOGIN_REFRESH_WINDOW_JITTER = Setting("sasl.login.refresh.window.jitter", DOUBLE, 0.05, between(0.0, 0.25), dynamic=PER_BROKER, per_listener=True,
    doc="Up to this share of a token's life is added by chance to the moment of its refresh, so that "
        "many clients do not ask at once.")
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = Setting("sasl.login.refresh.min.period.seconds", SHORT, 60, between(0, 900), dynamic=PER_BROKER, per_listener=True,
    doc="The least number of seconds between two refreshes of a token. Given up when it and the buffer "
        "together are longer than the token lives.")
SASL_LOGIN_REFRESH_BUFFER_SECONDS = Setting("sasl.login.refresh.buffer.seconds", SHORT, 300, between(0, 3600), dynamic=PER_BROKER, per_listener=True,
    doc="Seconds that should remain of a token when its successor is fetched.")
# OAUTHBEARER: where tokens come from, and how a broker judges them.
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = Setting("sasl.oauthbearer.token.endpoint.url", STRING, None, _ADDRESS, per_listener=True,
    doc="The https address that hands out tokens for the client's credentials.")
SASL_OAUTHBEARER_SCOPE = Setting("sasl.oauthbearer.scope", STRING, None, per_listener=True,
    doc="The scope to ask the token endpoint for, where the provider wants one.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID = Setting("sasl.oauthbearer.client.credentials.client.id", STRING, None, per_listener=True,
    doc="The client id to identify with at the token endpoint.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET = Setting("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, per_listener=True,
    doc="The secret that belongs to the client id.")
SASL_OAUTHBEARER_ASSERTION_FILE = Setting("sasl.oauthbearer.assertion.file", STRING, None, per_listener=True,
    doc="A file with a signed assertion to exchange for a token, in place of id and secret. It is read "
        "anew for each token, so another process may keep it fresh.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = Setting("sasl.oauthbearer.jwks.endpoint.url", STRING, None, _ADDRESS, per_listener=True,
    doc="The https address of the provider's public keys. Without keys a broker lets no token in.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = Setting("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, per_listener=True,
    doc="Milliseconds between two fetches of the provider's keys.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, per_listener=True,
    doc="Milliseconds before the keys are asked for again after a failure; doubled each time.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, per_listener=True,
    doc="The longest pause, in milliseconds, between two tries at the provider's keys.")
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = Setting("sasl.oauthbearer.clock.skew.seconds", INT, 30, per_listener=True,
    doc="Seconds by which the provider's clock and ours may disagree when a token's times are checked.")
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = Setting("sasl.oauthbearer.expected.audience", LIST, (), per_listener=True,
    doc="A token has to be meant for one of these audiences; empty does not look.")
SASL_OAUTHBEARER_EXPECTED_ISSUER = Setting("sasl.oauthbearer.expected.issuer", STRING, None, per_listener=True,
    doc="A token has to come from this issuer; null does not look. Set it together with the audience.")
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = Setting("sasl.oauthbearer.scope.claim.name", STRING, "scope", per_listener=True,
    doc="The claim that holds a token's scope, for providers that name it differently.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME = Setting("sasl.oauthbearer.sub.claim.name", STRING, "sub", per_listener=True,
    doc="The claim that becomes the user's name, for providers that name it differently.")
# fmt: on

ROWS: Final = settings_in(globals())

# fmt: off
SASL_OAUTHBEARER_HEADER_URLENCODE = Setting("sasl.oauthbearer.header.urlencode", BOOLEAN, False,
    doc="Whether id and secret are URL-encoded in the header to the token endpoint, as RFC 6749 has it. "
        "Turn it on when the provider rejects credentials with special characters.")
SASL_USERNAME = Setting("sasl.username", STRING, None,
    doc="Who logs in by PLAIN or SCRAM, in place of sasl.jaas.config. Kafka's own clients do not have it; "
        "librdkafka has.")
SASL_PASSWORD = Setting("sasl.password", PASSWORD, None,
    doc="The password that belongs to sasl.username.")
SASL_MECHANISM = Setting("sasl.mechanism", STRING, None, one_of(*MECHANISMS, any_case=True), kafka_default="GSSAPI",
    doc="How to log in when security.protocol has SASL in it; it has to be set then. Kafka assumes "
        "Kerberos, which Ottla does not have; SCRAM-SHA-512 never sends the password.")
SECURITY_PROTOCOL = Setting("security.protocol", STRING, "PLAINTEXT", one_of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", any_case=True),
    doc="What connections are made of: plain TCP or TLS, without or with a login. SASL_SSL is the one "
        "for networks you do not own.")
# fmt: on
