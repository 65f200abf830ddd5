"""Prints the bill of materials (CycloneDX 1.6, JSON): the parts of an installation, of the image and of the demo.

Python packages and their hashes come from image/requirements.lock, jars from the two lock files, the jars inside of
PySpark from its installation, and JavaScript from the folder of the status page. Licences are those that packages and
jars state themselves, or that PySpark states for its jars; `LICENCES` has the rest. A part without a licence stops the
release. The same commit gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
import uuid
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "lib")]

from wheel import committed  # noqa: E402  (the path comes first)

from validator.stream.jars import SIDECAR_LOCK, LockedJar, read_lock, resolve  # noqa: E402

Component = dict[str, Any]
VENDORED: Final = ROOT / "validator" / "publish" / "vendor"
LICENCES: Final = {
    "HdrHistogram": "CC0-1.0 OR BSD-2-Clause",
    "delta-spark_4.2_2.13": "Apache-2.0",
    "delta-storage": "Apache-2.0",
    "hash4j": "Apache-2.0",
    "lz4-java": "Apache-2.0",
    "metrics-core": "Apache-2.0",
    "pcollections": "MIT",
    "re2j": "BSD-3-Clause",
    "slf4j-api": "MIT",
    "slf4j-simple": "MIT",
    "vertx-uri-template": "EPL-2.0 OR Apache-2.0",
}
"""Licences of jars that state none, or only one of two; from the project's page. An entry must be needed by a jar."""
_STATED: Final = (
    (r"apache", "Apache-2.0"),
    (r"\bMIT\b|mit-license", "MIT"),
    (r"\bMPL-2\.0\b", "MPL-2.0"),
    (r"BSD[- ]2|Simplified BSD", "BSD-2-Clause"),
    (r"BSD[- ]3|(New|Revised) BSD|BSD New", "BSD-3-Clause"),
    # Licence texts, for jars that state only "BSD": the clause on endorsement is in one of the two licences.
    (r"Redistribution and use in source and binary forms(?s:.*)endorse\s+or\s+promote", "BSD-3-Clause"),
    (r"Redistribution and use in source and binary forms", "BSD-2-Clause"),
)
"""Pattern for a licence's name or text -> its SPDX identifier."""


_SECTIONS: Final = (
    ("CDDL) 1.0", "CDDL-1.0"),
    ("CDDL) 1.1", "CDDL-1.1"),
    ("Eclipse Distribution License (EDL) 1.0", "BSD-3-Clause"),
    ("Eclipse Public License (EPL) 2.0", "EPL-2.0"),
    ("Unicode/ICU License", "ICU"),
    ("BSD 0-Clause", "0BSD"),
)
"""Further headings in PySpark's list of its jars, which `_STATED` does not match -> the SPDX identifier."""


class Unlicensed(Exception):
    """A locked package or jar states no licence that this script knows."""


def main() -> None:
    """Print the bill."""
    bill = document()
    json.dump(bill, sys.stdout, indent=1, sort_keys=True)
    print()


def document() -> Component:
    """The whole bill. Raises `Unlicensed`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    components = [*packages(), *locked_jars(), *javascript()]
    inside = [part for component in components for part in component.get("components", [])]
    if idle := LICENCES.keys() - {component["name"] for component in [*components, *inside]}:
        raise Unlicensed(f"LICENCES: no lock has {' or '.join(sorted(idle))} any more; remove such entries.")
    known = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, known)}",
        "metadata": {
            "timestamp": datetime.fromtimestamp(committed(), UTC).isoformat(),
            "component": {
                "type": "application",
                "name": project["name"],
                "version": project["version"],
                "bom-ref": "streamproof",
                "licenses": expression(project["license"]),
            },
        },
        "components": components,
    }


def packages() -> Iterator[Component]:
    """The Python packages of an installation, with the hashes of every file that the lock accepts."""
    lock = (ROOT / "image" / "requirements.lock").read_text().replace("\\\n", " ")
    for line in re.findall(r"^\w.*$", lock, re.MULTILINE):
        name, version = re.match(r"([\w.-]+)==(\S+)", line).groups()  # type: ignore[union-attr]
        installed = metadata.distribution(name)
        if installed.version != version:
            raise Unlicensed(f"{name} {installed.version} is installed and {version} is locked: run scripts/setup.")
        component = library(name, version, f"pkg:pypi/{name}@{version}", re.findall(r"sha256:(\w+)", line))
        component["licenses"] = expression(of_package(name, installed))
        if name == "pyspark":
            component["components"] = list(bundled(Path(str(installed.locate_file("pyspark/jars"))), listed(installed)))
        yield component


def of_package(name: str, installed: metadata.Distribution) -> str:
    """The licence that an installed package states in its metadata, otherwise in its licence file."""
    about = installed.metadata
    stated: list[str | None] = [*(about.get_all("License-Expression") or [])]
    texts = [*(about.get_all("License") or []), *(about.get_all("Classifier") or [])]
    stated += [identifier(text) for text in texts if ":: " not in text or text.startswith("License ::")]
    for file in installed.files or []:
        if file.parts[0].endswith(".dist-info") and re.match("LICEN[SC]E|COPYING", file.name):
            stated.append(identifier(file.read_text()))
    return first(stated, name)


def locked_jars() -> Iterator[Component]:
    """The jars of the sidecar, and those of the demo's broker, which its first start fetches."""
    for lock, scope in ((SIDECAR_LOCK, "required"), (ROOT / "testbed" / "jars.lock", "optional")):
        for jar, path in zip(read_lock(lock), resolve(lock), strict=True):
            yield {
                **library(
                    jar.artifact, jar.version, f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}", [jar.sha256]
                ),
                "bom-ref": f"{scope}:{jar.coordinates}",
                "group": jar.group,
                "scope": scope,
                "licenses": expression(of_jar(jar, path)),
            }


def of_jar(jar: LockedJar, path: Path) -> str:
    """The licence that a jar states."""
    stated = [found for found in map(identifier, stated_in(path)) if found is not None]
    known = LICENCES.get(jar.artifact)
    if known in stated:
        raise Unlicensed(f"{jar.coordinates} states its licence itself: remove it from LICENCES.")
    return first([known, *stated], jar.coordinates)


def listed(installed: metadata.Distribution) -> dict[str, str]:
    """Artifact -> its licence, from the list of jars in PySpark's LICENSE file."""
    [file] = [file for file in installed.files or [] if file.name == "LICENSE" and ".dist-info" in file.parts[0]]
    found, current = {}, None
    lines = file.read_text().splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("This project bundles some components that are also licensed under the Apache"):
            current = "Apache-2.0"
        elif line.strip("-") and re.fullmatch("-{3,}", below):
            current = next((known for head, known in _SECTIONS if head in line), identifier(line))
        elif current is not None and (named := re.match(r"[\w.-]+:([\w.-]+)", line)) is not None:
            found[named[1]] = current
    return found


def bundled(folder: Path, of_list: dict[str, str]) -> Iterator[Component]:
    """The jars in PySpark, with the licence that they or PySpark's list state."""
    for path in sorted(folder.glob("*.jar")):
        name, version = re.fullmatch(r"(.+?)-(\d[\w.-]*)\.jar", path.name).groups()  # type: ignore[union-attr]
        component = library(
            name, version, f"pkg:generic/{name}@{version}", [hashlib.sha256(path.read_bytes()).hexdigest()]
        )
        component["bom-ref"] = f"pyspark/jars/{path.name}"
        stated = [*map(identifier, stated_in(path)), of_list.get(name), LICENCES.get(name)]
        yield {**component, "licenses": expression(first(stated, path.name))}


def stated_in(path: Path) -> Iterator[str]:
    """The statements of a licence in a jar's manifest, POM and licence file."""
    with zipfile.ZipFile(path) as jar:
        names = jar.namelist()
        for name in names:
            if name == "META-INF/MANIFEST.MF":
                unfolded = re.sub(r"\r?\n ", "", jar.read(name).decode(errors="replace"))
                yield from re.findall(r"^Bundle-License: *(.*)$", unfolded, re.MULTILINE)
            elif name.endswith("/pom.xml"):
                yield from re.findall(
                    r"<license>.*?<name>(.*?)</name>", jar.read(name).decode(errors="replace"), re.DOTALL
                )
        for name in names:
            if re.fullmatch(r"(META-INF/)?LICENSE(\.txt)?", name):
                yield jar.read(name)[:200].decode(errors="replace")


def javascript() -> Iterator[Component]:
    """The JavaScript libraries of the status page."""
    for path in sorted(VENDORED.glob("*.js")):
        name, source = path.name.partition(".")[0], path.read_text()
        version = re.search(r"v(\d+\.\d+\.\d+)", source[:300])
        stated = identifier((VENDORED / f"{name}-LICENSE.md").read_text())
        if version is None or stated is None:
            raise Unlicensed(
                f"{path}: its first lines name no version, or the licence file beside it names no known licence."
            )
        package = f"pkg:npm/{name.lower()}@{version[1]}"
        component = library(name, version[1], package, [hashlib.sha256(path.read_bytes()).hexdigest()])
        yield {**component, "licenses": expression(stated)}


def library(name: str, version: str, package: str, hashes: list[str]) -> Component:
    """A component with the fields that all components have."""
    algorithm = [{"alg": "SHA-256", "content": content} for content in sorted(hashes)]
    named = {"type": "library", "name": name, "version": version, "purl": package, "bom-ref": package}
    return {**named, "hashes": algorithm}


def expression(licence: str) -> list[Component]:
    """An SPDX expression in CycloneDX's format."""
    return [{"expression": licence}]


def identifier(stated: str) -> str | None:
    """The SPDX identifier for a licence as a package or jar states it; None if unknown."""
    return next((known for pattern, known in _STATED if re.search(pattern, stated, re.IGNORECASE)), None)


def first(stated: list[str | None], name: str) -> str:
    """The first of ``stated`` that is known. Raises `Unlicensed`."""
    found = next(filter(None, stated), None)
    if found is None:
        raise Unlicensed(f"{name} states no licence that is known here: add it to LICENCES in {Path(__file__).name}.")
    return found


if __name__ == "__main__":
    try:
        main()
    except Unlicensed as error:
        sys.exit(str(error))
