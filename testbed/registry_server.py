"""A real schema registry: Apicurio, which has Confluent's REST interface and keeps everything in memory.

Ivy fetches its archive (142 MB) when it is first used, as the jars of the sidecar; it is kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final, Self

from testbed.ports import free_port
from testbed.processes import OwnedProcess
from validator.stream.jars import JarChecksumError, JarDownloadError, find_java, ivy_dependency, run_ivy, user_cache

VERSION: Final = "2.6.13.Final"
"""Version 3 needs Java 21."""
_SHA256: Final = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
_PATH: Final = "/apis/ccompat/v7"
_START_SECONDS_MAX: Final = 180
_WANTED: Final = '<artifact name={name} type="tar.gz" ext="tar.gz" m:classifier="all"/>'


class RegistryServer:
    """A running registry. As a context manager it is stopped at the end."""

    def __init__(self, folder: Path) -> None:
        """Start it; its log is in ``folder``. Raises a `PrerequisiteError`, or RuntimeError if it does not answer."""
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}{_PATH}"
        [program] = _unpacked().glob("*-runner.jar")
        command: list[str | Path] = [
            find_java().executable,
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-Dquarkus.http.host=127.0.0.1",
        ]
        command += [f"-Dquarkus.http.port={self._port}", "-jar", program]
        self._process = OwnedProcess(command, log=folder / "registry.log", name="registry")
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not self._answers():
            if not self._process.is_running or time.monotonic() > deadline:
                said = self._process.last_lines()
                self._process.kill()
                raise RuntimeError(f"the schema registry does not answer: {said}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        client = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            client.request("GET", f"{_PATH}/subjects")
            return client.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


def _unpacked() -> Path:
    """The folder of the program, fetched if it is not in the cache."""
    cache = user_cache() / "engines"
    folder = cache / f"apicurio-{VERSION}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".apicurio-", dir=cache) as name:
            with tarfile.open(_fetch(Path(name))) as archive:
                archive.extractall(Path(name, "program"), filter="data")
            try:
                Path(name, "program").rename(folder)  # atomically
            except OSError:
                if not folder.exists():  # otherwise another process was faster
                    raise
    return folder


def _fetch(folder: Path) -> Path:
    wanted = ivy_dependency("io.apicurio", "apicurio-registry-app", VERSION, _WANTED)
    said = run_ivy(wanted, folder, types="tar.gz", retrieve="[artifact].[ext]")
    archive = folder / "apicurio-registry-app.tar.gz"
    if not archive.is_file():
        raise JarDownloadError(f"Ivy could not fetch Apicurio {VERSION}: {said}")
    if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != _SHA256:
        raise JarChecksumError(f"The fetched Apicurio {VERSION} has sha256 {found}, and not {_SHA256}.")
    return archive
