"""The pytest plugin: the fixture `streamproof` verifies a pipeline, and fails the test if a guarantee is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.api import Report
    from validator.runs import KeptProcess


@pytest.fixture(scope="session")
def streamproof_process() -> Iterator[KeptProcess]:
    """The process in which the verifications of a session run, so that Spark starts once."""
    from validator.runs import KeptProcess

    process = KeptProcess()
    yield process
    process.close()


@pytest.fixture
def streamproof(
    tmp_path: Path, request: pytest.FixtureRequest, streamproof_process: KeptProcess
) -> Callable[..., Report]:
    """A function with the arguments of `validator.api.verify`. It returns the report if the verdict is `pass`.

    Otherwise the test fails with the report's summary, by `GuaranteeBroken` or `NotVerified`. Each call has a state of
    its own, unless it passes ``state``.
    """
    numbers = count(1)

    def check(
        config: str | Path,
        *,
        settings: Mapping[str, object] | None = None,
        state: str | Path | None = None,
        at_rest: bool = False,
        leave_open: bool = False,
        timeout_seconds: float | None = None,
    ) -> Report:
        from validator.api import verified_by

        place = tmp_path / f"streamproof-{next(numbers)}" if state is None else state
        report = verified_by(
            streamproof_process,
            config,
            settings,
            place,
            at_rest=at_rest,
            leave_open=leave_open,
            timeout_seconds=timeout_seconds,
        )
        request.node.user_properties.append(("streamproof", str(report.verdict.value)))
        return report.require()

    return check
