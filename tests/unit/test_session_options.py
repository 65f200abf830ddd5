"""The JVM options of the sidecar's Spark."""

from __future__ import annotations

import pytest

from validator.stream.session import with_collector


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
