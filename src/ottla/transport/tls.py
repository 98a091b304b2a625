"""TLS: whom we trust and who we are, from settings; and connections that speak it.

Invariant: a certificate is always checked, and its host name too unless that was turned off by
name. What cannot be read or does not fit is InvalidSettings before anything is connected to; no
message holds a key or a password, and no key that was given as text is written to a disk.
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
from ottla.settings.problems import InvalidSettings, Problem
from ottla.settings.table import Setting
from ottla.transport.failures import NO_TLS
from ottla.transport.network import Connector

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL
)
_LINE_CHARACTERS: Final = 64

# How the stores begin that Java has and Python does not read.
_STORES: Final = {
    b"\xfe\xed\xfe\xed": (
        "a JKS store; `keytool -importkeystore -srckeystore {0} -destkeystore store.p12 "
        "-deststoretype PKCS12` and `openssl pkcs12 -in store.p12 -out store.pem` make it PEM"
    ),
    b"\x30": "a PKCS12 store or DER; `openssl pkcs12 -in {0} -out store.pem` makes a store PEM",
}


class _Block(NamedTuple):
    """One thing in a PEM text."""

    label: str
    text: str


def client_tls(config: Config) -> ssl.SSLContext:
    """How a client speaks TLS, by its settings; InvalidSettings when they cannot be met."""
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
    """Connects as another network does, and speaks TLS from then on."""

    def __init__(self, under: Connector, context: ssl.SSLContext) -> None:
        self._under = under
        self._context = context

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect and shake hands; OSError when either cannot be done."""
        opening = _Opening()
        await self._under.connect(lambda: opening, host, port)
        under = opening.transport
        assert under is not None
        made = protocol()
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(under, made, self._context, server_hostname=host)
        except ConnectionError as error:
            raise ConnectionError(f"it ended in the TLS handshake: {NO_TLS}") from error
        except BaseException:
            under.abort()
            raise
        if transport is None:
            raise ConnectionError(f"it ended in the TLS handshake: {NO_TLS}")
        made.connection_made(transport)


class _Opening(asyncio.Protocol):
    """A connection until TLS has it."""

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)


# Trust and identity.


def _trust(context: ssl.SSLContext, config: Config) -> None:
    setting, blocks = _blocks(
        config, security.SSL_TRUSTSTORE_LOCATION, security.SSL_TRUSTSTORE_CERTIFICATES
    )
    if setting is None:
        context.load_default_certs()
        return
    certificates = [block.text for block in blocks if block.label.endswith("CERTIFICATE")]
    if not certificates:
        _fail(setting, "has no certificate in it")
    try:
        context.load_verify_locations(cadata="\n".join(certificates))
    except ssl.SSLError as error:
        _fail(setting, f"has a certificate that cannot be read ({_spelled(error)})")


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
        _fail(setting, "has no private key in it" if not keys else "has no certificate in it")
    is_locked = "ENCRYPTED" in keys[0].label or "ENCRYPTED" in keys[0].text
    password = config[security.SSL_KEY_PASSWORD]
    if is_locked and password is None:
        _fail(security.SSL_KEY_PASSWORD, f"missing, because the key in {setting.name} is encrypted")
    with _in_a_file("\n".join(block.text for block in (keys[0], *certificates))) as path:
        try:
            # A function, because without one OpenSSL asks at the terminal.
            context.load_cert_chain(path, password=lambda: password.reveal() if password else "")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                _fail(setting, "the key and the certificate do not belong together")
            if is_locked:
                _fail(security.SSL_KEY_PASSWORD, f"does not open the key in {setting.name}")
            _fail(setting, f"has a key or a certificate that cannot be read ({_spelled(error)})")


def _blocks(
    config: Config, location: Setting[str | None], text: Setting[Any]
) -> tuple[Setting[Any] | None, list[_Block]]:
    """What a store holds, and the setting that named it; None when nobody did."""
    if config[text] is not None:
        return text, _pem(config[text].reveal())
    path = config[location]
    if path is None:
        return None, []
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        _fail(location, f"cannot be read: {path}: {error.strerror}")
    blocks = _pem(raw.decode("latin-1"))
    if not blocks:
        kind = next((told for magic, told in _STORES.items() if raw.startswith(magic)), None)
        found = f"it is {kind.format(path)}" if kind else "nothing of PEM is in it"
        _fail(location, f"{path}: {found}, valid: PEM")
    return location, blocks


def _pem(text: str) -> list[_Block]:
    """The blocks of a PEM text; one that was put on a single line gets its lines back."""
    blocks: list[_Block] = []
    for found in _BLOCK.finditer(text):
        label, body = found["label"], found["body"].strip()
        if ":" not in body:
            body = "\n".join(wrap("".join(body.split()), _LINE_CHARACTERS))
        blocks.append(_Block(label, f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"))
    return blocks


@contextmanager
def _in_a_file(text: str) -> Generator[str]:
    """The path of a file with a text, as OpenSSL wants it: in memory where the system can."""
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
    """Restrict a context to suites; those of TLS 1.3 only all together, as Python has it."""
    setting = security.SSL_CIPHER_SUITES
    newest = {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.3"}
    wanted = newest & {*suites}
    older = [_openssl_name(name) for name in suites if name not in newest]
    if wanted and wanted != newest:
        names = ", ".join(sorted(newest))
        _fail(setting, f"those of TLS 1.3 can be had only together here: {names}")
    for name in older:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            _fail(setting, f"OpenSSL has no cipher suite {name}")
    if older:
        context.set_ciphers(":".join(older))
    if not wanted:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        _fail(setting, f"none of them is of a version in {security.SSL_ENABLED_PROTOCOLS.name}")


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a suite, for one by IANA's: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
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
