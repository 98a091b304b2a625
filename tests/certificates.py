"""Certificates for tests, made by openssl: authorities, and certificates that they sign."""

import subprocess
from pathlib import Path


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Authority:
    """A certificate authority; `path` is its certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.name = name
        self.path = folder / f"{name}.pem"
        self._key = folder / f"{name}-key.pem"
        _new_key(self._key)
        openssl("req", "-x509", "-new", "-key", self._key, "-subj", f"/CN={name}", "-days", "3",
                "-out", self.path)  # fmt: skip

    def issue(self, name: str, *alternatives: str, days: int = 3, password: str = "") -> Path:
        """A PEM file with a new key and a certificate, for names such as DNS:localhost."""
        key, asked, signed, extensions, whole = (
            self.folder / f"{self.name}-{name}{suffix}"
            for suffix in (".key", ".csr", ".crt", ".ext", ".pem")
        )
        _new_key(key)
        openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", asked)
        names = f"subjectAltName={','.join(alternatives)}\n"
        extensions.write_text(names if alternatives else "subjectKeyIdentifier=hash\n")
        openssl("x509", "-req", "-in", asked, "-CA", self.path, "-CAkey", self._key,
                "-CAcreateserial", "-days", str(days), "-extfile", extensions,
                "-out", signed)  # fmt: skip
        text = key.read_text()
        if password:
            text = openssl("pkcs8", "-topk8", "-in", key, "-passout", f"pass:{password}")
        whole.write_text(text + signed.read_text())
        return whole


def _new_key(path: Path) -> None:
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
