"""A release is built from its tag alone, is reproducible byte for byte, and lists its parts and licences."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from validator import __version__

ROOT = Path(__file__).parents[2]
TAG = f"v{__version__}"

pytestmark = pytest.mark.timeout(300)


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", "-C", folder, *author, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the current files, committed and tagged, with the virtual environment of this checkout."""
    checkout = tmp_path_factory.mktemp("tagged") / "checkout"
    git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(checkout))
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.run(listed, check=True, stdout=-1).stdout.decode().split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).unlink(missing_ok=True)
        if os.path.lexists(ROOT / name):
            shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--allow-empty", "-m", "release")
    git(checkout, "tag", "--force", TAG)
    (checkout / "README.md").write_text("not committed")
    # An environment cannot be moved. This checkout's environment is the same that scripts/setup would create.
    (checkout / "scripts" / "setup").write_text("exit 0\n")
    (checkout / ".venv").symlink_to(ROOT / ".venv")
    return checkout


def released(checkout: Path, folder: Path, tag: str = TAG, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [checkout / "scripts" / "release", tag, folder]
    return subprocess.run(command, check=False, capture_output=True, text=True, umask=umask)


@pytest.mark.full
def test_two_builds_of_a_tag_under_different_umasks_have_the_same_bytes(tagged: Path, tmp_path: Path) -> None:
    made = []
    for name, umask in (("first", 0o022), ("second", 0o077)):
        done = released(tagged, tmp_path / name, umask=umask)
        assert done.returncode == 0, done.stderr
        made.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert made[0] == made[1]
    assert sorted(made[0]) == [
        "SHA256SUMS", f"streamproof-{__version__}-py3-none-any.whl", f"streamproof-{__version__}-source.tar.gz",
        f"streamproof-{__version__}.cdx.json",
    ]  # fmt: skip
    for line in made[0]["SHA256SUMS"].decode().splitlines():
        digest, name = line.split()
        assert hashlib.sha256(made[0][name]).hexdigest() == digest
    with tarfile.open(tmp_path / "first" / f"streamproof-{__version__}-source.tar.gz") as source:
        readme = source.extractfile(f"streamproof-{__version__}/README.md")
        assert readme is not None
        assert readme.read() == (ROOT / "README.md").read_bytes(), "the tag's, not the checkout's"

    bill = json.loads(made[0][f"streamproof-{__version__}.cdx.json"])
    parts = {part["purl"]: part for part in bill["components"]}
    for lock, form in (
        ("image/requirements.lock", "=="),
        ("validator/stream/jars.lock", ":"),
        ("testbed/jars.lock", ":"),
    ):
        names = [
            line.split()[0] for line in (ROOT / lock).read_text().splitlines() if form in line and line[0].isalpha()
        ]
        for name in names:
            purl = (
                f"pkg:pypi/{name.replace('==', '@')}" if form == "==" else "pkg:maven/{}/{}@{}".format(*name.split(":"))
            )
            assert parts[purl]["hashes"], purl
            assert parts[purl]["licenses"][0]["expression"], purl
    assert any(purl.startswith("pkg:npm/uplot@") for purl in parts)
    [spark] = [part for purl, part in parts.items() if purl.startswith("pkg:pypi/pyspark@")]
    of_jars = {part["name"]: part["licenses"][0]["expression"] for part in spark["components"]}
    assert (of_jars["icu4j"], of_jars["hk2-api"], of_jars["xz"]) == ("ICU", "EPL-2.0", "0BSD")


def test_a_part_without_a_licence_stops_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "lib"))
    sbom = importlib.import_module("sbom")
    assert sbom.identifier("License :: OSI Approved :: BSD License") is None, "it does not say which"
    assert sbom.of_package("py4j", metadata.distribution("py4j")) == "BSD-3-Clause"
    known = dict(sbom.LICENCES)
    for changed, said in (
        ({name: of for name, of in known.items() if name != "re2j"}, "com.google.re2j:re2j:.* states no licence"),
        ({**known, "vertx": "MIT"}, "no lock has vertx any more"),
        ({**known, "jose4j": "Apache-2.0"}, "jose4j:.* states its licence itself"),
    ):
        monkeypatch.setattr(sbom, "LICENCES", changed)
        with pytest.raises(sbom.Unlicensed, match=said):
            sbom.document()


def test_only_the_tag_of_the_version_is_released(tagged: Path, tmp_path: Path) -> None:
    git(tagged, "tag", "--force", "v999")
    for tag, said in (
        ("v998", "tag v998 does not exist"),
        ("v999", f"name the tag v{__version__}"),
        ("main", "does not exist"),
    ):
        done = released(tagged, tmp_path / tag, tag)
        assert (done.returncode, said in done.stderr) == (2, True), done
        assert not (tmp_path / tag).exists()
