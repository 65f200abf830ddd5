"""The image's files agree with each other and the product. `tests/integration/test_image.py` builds and runs the
image."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from validator import __version__

ROOT = Path(__file__).parents[2]
IMAGE: Final = ROOT / "image"
DOCKERFILE: Final = (IMAGE / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def image_tree() -> Iterator[ModuleType]:
    """The Python part of scripts/image-tree."""
    before = sys.path.copy()
    spec = importlib.util.spec_from_file_location("image_tree", ROOT / "scripts" / "lib" / "image_tree.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before


def pins(lock: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==(\S+)((?: \\\n +--hash=\S+)+)", lock.read_text(), re.MULTILINE)
    return {name: version + hashes for name, version, hashes in found}


def test_the_dockerfile_has_the_steps_of_the_tested_tree(image_tree: ModuleType) -> None:
    assert "RUN --mount=type=bind,source=image/base-layer,target=/base-layer sh /base-layer\n" in DOCKERFILE
    assert "/source/scripts/image-tree /tree\n" in DOCKERFILE
    [user] = re.findall(r"useradd --uid (\d+)", (IMAGE / "base-layer").read_text())
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE) == [f"{user}:{user}"]
    assert int(user) == image_tree.USER_ID
    assert image_tree.OWNED_BY_THE_USER in DOCKERFILE
    assert f"ARG VERSION={__version__}\n" in DOCKERFILE
    for command in re.findall(r'\["(streamproof[\w-]*)"\]', DOCKERFILE):
        assert command in image_tree.COMMANDS
        assert (IMAGE / command).stat().st_mode & 0o111


def test_the_image_has_the_tested_versions() -> None:
    tested, shipped = pins(ROOT / "requirements.lock"), pins(IMAGE / "requirements.lock")
    assert "pyspark" in shipped
    assert shipped.items() <= tested.items()


def test_every_exclusion_matches_an_installed_file(image_tree: ModuleType) -> None:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    site = Path(spec.origin).parents[1]
    # `excluded` raises if a pattern matches nothing.
    excluded = list(image_tree.excluded(site))
    assert all(path.is_relative_to(site) for path in excluded)
    kept = {path.name for path in (site / "pyspark" / "jars").glob("*.jar")} - {path.name for path in excluded}
    for needed in ("spark-core_", "spark-sql_", "spark-catalyst_", "spark-kubernetes_", "kubernetes-client-", "ivy-"):
        assert any(name.startswith(needed) for name in kept), needed


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Serve this status; yield the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def health(port: int) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, "-I", IMAGE / "streamproof-health", str(port)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_health_check_fails_unless_the_sidecar_answers() -> None:
    with answering(200) as port:
        assert health(port).returncode == 0
    assert health(port).returncode == 1, "nothing listens there any more"
    with answering(500) as port:
        done = health(port)
        assert (done.returncode, "not healthy" in done.stderr) == (1, True)
