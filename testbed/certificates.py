"""Certificates for a secured broker and its clients, created with the `openssl` command: a private CA and the
certificates that it signs.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
KEY_PASSWORD: Final = "key-4711"  # noqa: S105 - password of a test key
"""Password of the encrypted keys."""


@dataclass(frozen=True)
class Identity:
    """A certificate with its private key, both PEM; ``encrypted_key`` is the same key encrypted with `KEY_PASSWORD`."""

    certificate: Path
    key: Path
    encrypted_key: Path

    @property
    def key_store(self) -> str:
        """Key and certificate in one text, the format of a PEM key store."""
        return self.key.read_text(encoding="ascii") + self.certificate.read_text(encoding="ascii")


class Authority:
    """A private certificate authority in ``folder``. Raises RuntimeError if `openssl` is not on the PATH."""

    def __init__(self, folder: Path, name: str = "streamproof test CA") -> None:
        program = shutil.which("openssl")
        if program is None:
            raise RuntimeError("no openssl command on the PATH: install it (Debian: apt-get install openssl)")
        self._openssl, self._folder = program, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        self._run("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate,
                  "-subj", f"/CN={name}", "-days", "30")  # fmt: skip

    def issue(self, name: str, *, address: str | None = None, expired: bool = False) -> Identity:
        """A certificate with CN ``name``; a server certificate also has the IP address ``address``. ``expired``:
        already expired.
        """
        made = Identity(*(self._folder / f"{name}.{suffix}" for suffix in ("pem", "key", "encrypted.key")))
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName=IP:{address}\n" if address else "", encoding="ascii")
        self._run("req", *_NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        signed: list[str | Path] = [
            "-CA",
            self.certificate,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-extfile",
            extensions,
        ]
        # A negative number of days: expired since yesterday.
        self._run("x509", "-req", "-in", request, *signed, "-out", made.certificate, "-days", "-1" if expired else "30")
        self._run("pkcs8", "-topk8", "-in", made.key, "-out", made.encrypted_key, "-passout", f"pass:{KEY_PASSWORD}")
        return made

    def _run(self, *arguments: str | Path) -> None:
        done = subprocess.run([self._openssl, *arguments], check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr}")
