"""The benchmark of statements, and the job of the Kafka Streams DSL, run those of docs/evidence.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.statements import FLINK, SPARK
from testbed.engines.jvm import SOURCES

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize("statement", [FLINK["sums"], FLINK["ids"], SPARK["sums"]])
def test_the_page_has_the_statements_that_the_benchmark_runs(statement: str) -> None:
    assert statement in PAGE


def test_the_job_of_the_dsl_runs_the_statement_of_the_page() -> None:
    statement = "n++; ids += id; squares += id * id;"
    assert statement in PAGE
    assert statement in (SOURCES / "KafkaStreamsJob.java").read_text(encoding="utf-8")
