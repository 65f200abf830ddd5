"""A stage for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture
def linked(stage: Stage) -> Iterator[Stage]:
    """A stage with a link through the proxy; ``stage.link_port`` is where clients connect."""
    with stage.link():
        yield stage
