"""The benchmark of statements runs those of docs/evidence.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.statements import FLINK, SPARK

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize("statement", [FLINK["sums"], FLINK["ids"], SPARK["sums"]])
def test_the_page_has_the_statements_that_the_benchmark_runs(statement: str) -> None:
    assert statement in PAGE
