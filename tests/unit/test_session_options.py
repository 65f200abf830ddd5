"""The options of the sidecar's Spark and of its JVM."""

from __future__ import annotations

import pytest

from validator.stream.session import SessionUnfit, start, with_collector


@pytest.mark.parametrize(
    ("given", "elsewhere", "expected"),
    [
        ("", [], "-XX:+UseParallelGC"),
        ("-Xss4m", ["-Dgc=x"], "-XX:+UseParallelGC -Xss4m"),
        ("-XX:+UseG1GC -Xss4m", [""], "-XX:+UseG1GC -Xss4m"),
        ("-Xss4m", ["", "-XX:+UseSerialGC"], "-Xss4m"),
    ],
)
def test_a_collector_that_somebody_chose_stays_the_only_one(given: str, elsewhere: list[str], expected: str) -> None:
    assert with_collector(given, elsewhere) == expected


def test_an_option_that_the_reading_of_events_cannot_do_with_is_refused() -> None:
    with pytest.raises(SessionUnfit, match="useLargeVarTypes to 'true', streamproof needs 'false': remove it"):
        start("refused", "local[1]", [], {"spark.sql.execution.arrow.useLargeVarTypes": "true"})
