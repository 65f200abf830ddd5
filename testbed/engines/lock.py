"""Prints the lines of an engine's lock file: Maven coordinates and their runtime dependencies, with hashes.

    python -m testbed.engines.lock org.apache.kafka:kafka-streams:4.1.0 org.slf4j:slf4j-simple:1.7.36

Review the difference before committing it: the output is what the repository served at this time.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from validator.stream.jars import PrerequisiteError, find_java, ivy_jar

_FETCH_SECONDS_MAX: Final = 900
_SETTINGS: Final = (
    '<ivysettings><settings defaultResolver="public"/><resolvers>'
    '<ibiblio name="public" m2compatible="true"/></resolvers></ivysettings>'
)


class LockFailed(PrerequisiteError):
    """The coordinates could not be resolved. The message quotes Ivy."""


def lock_lines(coordinates: Sequence[str]) -> list[str]:
    """Return ``group:artifact:version sha256`` of the coordinates and their dependencies, sorted. Raises LockFailed."""
    dependencies = "".join(_dependency(text) for text in coordinates)
    with tempfile.TemporaryDirectory(prefix="streamproof-lock-") as name:
        folder = Path(name)
        (folder / "settings.xml").write_text(_SETTINGS, encoding="utf-8")
        (folder / "ivy.xml").write_text(
            '<ivy-module version="2.0"><info organisation="streamproof" module="lock"/>'
            f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
            "</ivy-module>",
            encoding="utf-8",
        )
        command: list[str | Path] = [find_java().executable, "-jar", ivy_jar(), "-warn"]
        command += ["-settings", folder / "settings.xml", "-ivy", folder / "ivy.xml", "-cache", folder / "cache"]
        # Bundles are jars too; only their POM shows the type.
        command += ["-types", "jar", "bundle"]
        command += ["-retrieve", f"{folder}/out/[organisation]:[artifact]:[revision].[ext]"]
        run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX)
        found = sorted((folder / "out").glob("*.jar"))
        if run.returncode != 0 or not found:
            raise LockFailed(f"Ivy could not resolve {', '.join(coordinates)}:\n{run.stdout[-2000:]}")
        return [f"{jar.name.removesuffix('.jar')} {hashlib.sha256(jar.read_bytes()).hexdigest()}" for jar in found]


def _dependency(text: str) -> str:
    group, artifact, version = text.split(":")
    return (
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} "
        'conf="default->compile(*),runtime(*),master(*)"/>'
    )


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lock_lines(sys.argv[1:])))
