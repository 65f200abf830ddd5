"""A pipeline whose topics hold CSV, on a real broker: lines written by Python's `csv`, exact counts, and a restart."""

from __future__ import annotations

import csv
import io
from typing import Final

import pytest

from tests.integration.sidecar_fixtures import Pipeline, iso, pipeline, spark
from validator.state.identity import StateMismatch

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

PAGE: Final = 'a "page"; of, two\nlines'
CLICKS: Final = "inputs.0.format={kind: csv, columns: [id, page, timestamp]}"
ANSWERS: Final = "outputs.0.format={kind: csv, columns: [page, windowStart, clickIds], delimiter: ;, list_delimiter: /}"
LATE: Final = "late.0.format={kind: csv, columns: [clickId, page, clickTimestamp]}"


def line(*fields: object, delimiter: str = ",") -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerow(fields)
    return file.getvalue()


@pytest.mark.full
def test_csv_lines_are_judged_like_json_objects(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(
        *(line(number, PAGE, iso(number)) for number in range(1, 9)),
        line("x-9", "b", iso(5)),
        line("next", "b", iso(99)),
    )
    pipeline.clicks("10,b", line(11, "", iso(5)))
    pipeline.answers(
        line(PAGE, iso(0), "1/2/3/3/ghost", delimiter=";"),
        line("b", iso(0), "x-9/4", delimiter=";"),
        line(PAGE, iso(0), "", delimiter=";"),
        '"b";1970-01-01T00:00:00;""',
    )
    pipeline.put(pipeline.late, line(5, PAGE, iso(5)))
    run = pipeline.once(CLICKS, ANSWERS, LATE)
    # 4 is in the result of b. 6, 7 and 8 are in no result. An undecodable event may be the ghost or a second 3.
    assert run.counts() == {
        "expected": 10, "processed": 4, "late": 1, "duplicate": 1, "misplaced": 1, "unknown_id": 1, "missing": 5
    }  # fmt: skip
    assert (run.report["inputs"]["undecodable"], run.report["results"]["undecodable"]) == (2, 1)
    assert run.report["violations"]["confirmed"]["missing"] == 5
    assert run.status == 1

    again = pipeline.once(CLICKS, ANSWERS, LATE)
    assert again.counts() == run.counts(), "the state has the format"
    with pytest.raises(StateMismatch, match=r"inputs\[0\]\.format .*csv.* \"json\" now"):
        pipeline.once(ANSWERS, LATE)
