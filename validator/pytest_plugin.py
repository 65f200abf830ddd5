"""The pytest plugin: the fixture `streamproof` verifies a pipeline, and fails the test if a guarantee is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from validator.api import Report


@pytest.fixture
def streamproof(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Report]:
    """A function with the arguments of `validator.api.verify`. It returns the report if the verdict is `pass`.

    Otherwise the test fails with the report's summary, by `GuaranteeBroken` or `NotVerified`. Each test has a state of
    its own, unless it passes ``state``.
    """

    def check(config: str | Path, **given: Any) -> Report:
        from validator.api import verify

        given.setdefault("state", tmp_path / "streamproof")
        report = verify(config, **given)
        request.node.user_properties.append(("streamproof", str(report.verdict.value)))
        return report.require()

    return check
