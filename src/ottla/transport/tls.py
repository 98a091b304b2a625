"""TLS for clients: truststore, keystore and cipher suites from settings, and the handshake.

Settings that cannot be read or do not fit together raise InvalidSettings before connecting.

Invariant: the certificate is always verified, and its host name unless that check was disabled by
name. No message contains a key or a password; a key given as text is not written to a disk.
"""

import asyncio
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, NamedTuple, NoReturn, cast

from ottla.settings import security
from ottla.settings.config import Config
from ottla.settings.config_def import Setting
from ottla.settings.invalid_settings import InvalidSettings, Problem
from ottla.transport.failures import NO_TLS
from ottla.transport.network import Connector

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL
)
_LINE_CHARACTERS: Final = 64

# The first bytes of Java's stores, which Python cannot read.
_STORES: Final = {
    b"\xfe\xed\xfe\xed": (
        "a JKS store; `keytool -importkeystore -srckeystore {0} -destkeystore store.p12 "
        "-deststoretype PKCS12` and `openssl pkcs12 -in store.p12 -out store.pem` convert it to PEM"
    ),
    b"\x30": "a PKCS12 store or DER; `openssl pkcs12 -in {0} -out store.pem` converts it to PEM",
}


class _Block(NamedTuple):
    """One block of a PEM text."""

    label: str
    text: str


def client_tls(config: Config) -> ssl.SSLContext:
    """Return the TLS context for a client's settings; raises InvalidSettings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(config[security.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM])
    versions = sorted(_VERSIONS[name] for name in config[security.SSL_ENABLED_PROTOCOLS])
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if suites := config[security.SSL_CIPHER_SUITES]:
        _choose_suites(context, suites)
    _trust(context, config)
    _identify(context, config)
    return context


class TlsNetwork:
    """Wraps the connections of another network in TLS."""

    def __init__(self, under: Connector, context: ssl.SSLContext) -> None:
        self._under = under
        self._context = context

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect and do the TLS handshake; raises OSError."""
        opening = _Opening()
        await self._under.connect(lambda: opening, host, port)
        under = opening.transport
        assert under is not None
        made = protocol()
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(under, made, self._context, server_hostname=host)
        except ConnectionError as error:
            raise ConnectionError(f"closed in the TLS handshake: {NO_TLS}") from error
        except BaseException:
            under.abort()
            raise
        if transport is None:
            raise ConnectionError(f"closed in the TLS handshake: {NO_TLS}")
        made.connection_made(transport)


class _Opening(asyncio.Protocol):
    """The protocol of a connection before the TLS handshake."""

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)


# Truststore and keystore.


def _trust(context: ssl.SSLContext, config: Config) -> None:
    setting, blocks = _blocks(
        config, security.SSL_TRUSTSTORE_LOCATION, security.SSL_TRUSTSTORE_CERTIFICATES
    )
    if setting is None:
        context.load_default_certs()
        return
    certificates = [block.text for block in blocks if block.label.endswith("CERTIFICATE")]
    if not certificates:
        _fail(setting, "contains no certificate")
    try:
        context.load_verify_locations(cadata="\n".join(certificates))
    except ssl.SSLError as error:
        _fail(setting, f"contains an unreadable certificate ({_spelled(error)})")


def _identify(context: ssl.SSLContext, config: Config) -> None:
    location, key, chain = (
        security.SSL_KEYSTORE_LOCATION,
        security.SSL_KEYSTORE_KEY,
        security.SSL_KEYSTORE_CERTIFICATE_CHAIN,
    )
    setting, blocks = _blocks(config, location, key)
    if setting is None:
        return
    if setting is key:
        blocks += _blocks(config, location, chain)[1]
    keys = [block for block in blocks if block.label.endswith("PRIVATE KEY")]
    certificates = [block for block in blocks if block.label.endswith("CERTIFICATE")]
    if not keys or not certificates:
        _fail(setting, "contains no private key" if not keys else "contains no certificate")
    is_locked = "ENCRYPTED" in keys[0].label or "ENCRYPTED" in keys[0].text
    password = config[security.SSL_KEY_PASSWORD]
    if is_locked and password is None:
        _fail(security.SSL_KEY_PASSWORD, f"required: the key in {setting.name} is encrypted")
    with _in_a_file("\n".join(block.text for block in (keys[0], *certificates))) as path:
        try:
            # Without a function, OpenSSL would prompt on the terminal.
            context.load_cert_chain(path, password=lambda: password.reveal() if password else "")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                _fail(setting, "the key does not match the certificate")
            if is_locked:
                _fail(security.SSL_KEY_PASSWORD, f"does not decrypt the key in {setting.name}")
            _fail(setting, f"contains an unreadable key or certificate ({_spelled(error)})")


def _blocks(
    config: Config, location: Setting[str | None], text: Setting[Any]
) -> tuple[Setting[Any] | None, list[_Block]]:
    """Return the PEM blocks of a store and the setting that names it; None if none does."""
    if config[text] is not None:
        return text, _pem(config[text].reveal())
    path = config[location]
    if path is None:
        return None, []
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        _fail(location, f"cannot read {path}: {error.strerror}")
    blocks = _pem(raw.decode("latin-1"))
    if not blocks:
        kind = next((told for magic, told in _STORES.items() if raw.startswith(magic)), None)
        found = f"it is {kind.format(path)}" if kind else "it contains no PEM block"
        _fail(location, f"{path}: {found}; a PEM file is required")
    return location, blocks


def _pem(text: str) -> list[_Block]:
    """Return the blocks of a PEM text; a block on a single line is wrapped again."""
    blocks: list[_Block] = []
    for found in _BLOCK.finditer(text):
        label, body = found["label"], found["body"].strip()
        if ":" not in body:
            body = "\n".join(wrap("".join(body.split()), _LINE_CHARACTERS))
        blocks.append(_Block(label, f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"))
    return blocks


@contextmanager
def _in_a_file(text: str) -> Generator[str]:
    """Yield the path of a file with this text, in memory where the system supports it."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("key")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


# Cipher suites.


def _choose_suites(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """Restrict a context to cipher suites; Python can select those of TLS 1.3 only together."""
    setting = security.SSL_CIPHER_SUITES
    newest = {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.3"}
    wanted = newest & {*suites}
    older = [_openssl_name(name) for name in suites if name not in newest]
    if wanted and wanted != newest:
        names = ", ".join(sorted(newest))
        _fail(setting, f"TLS 1.3 suites can only be enabled together: {names}")
    for name in older:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            _fail(setting, f"OpenSSL does not support cipher suite {name}")
    if older:
        context.set_ciphers(":".join(older))
    if not wanted:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        _fail(setting, f"no suite matches a version in {security.SSL_ENABLED_PROTOCOLS.name}")


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name for an IANA name such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if not name.startswith("TLS_"):
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC", "")
    cipher = cipher.replace("POLY1305_SHA256", "POLY1305")
    prefix = "" if exchange == "RSA" else f"{exchange}-"
    return f"{prefix}{cipher}".replace("_", "-")


def _spelled(error: ssl.SSLError) -> str:
    return str(error.reason or "no reason given").lower().replace("_", " ")


def _fail(setting: Setting[Any], what: str) -> NoReturn:
    raise InvalidSettings([Problem(setting.name, what)]) from None
