"""Which workloads a test kills on which real engine, beside an offline count: engine and workload."""

from __future__ import annotations

from typing import Final

PGVALS: Final = [(engine, kind) for engine in ("flink", "kafka_streams", "spark", "storm") for kind in ("sst", "mst")]
"""In `test_killed_worker`, `test_killed_join`, `test_kills_at_least_once` and `test_join_at_least_once`."""
ALONE: Final = [
    ("kafka_streams", "statistics"),
    ("kafka_streams", "nexmark_q12"),
    ("kafka_streams", "nexmark_q7"),
    ("spark", "projection"),
    ("kafka_streams", "distinct"),
    ("kafka_streams", "nexmark_q5"),
    ("kafka_streams", "session_window"),
    ("kafka_streams", "sliding_window"),
    ("kafka_streams", "running_aggregate"),
    ("kafka_streams", "passthrough"),
    ("kafka_streams", "identity"),
    ("kafka_streams", "traffic_parse"),
    ("kafka_streams", "traffic_flows"),
    ("spark", "grep"),
    ("spark", "distinct_count"),
    ("kafka_streams", "shufflebench"),
    ("flink", "statistics"),
    ("flink", "wordcount"),
    ("flink", "nexmark_q7"),
    ("flink", "nexmark_q1"),
    ("flink", "nexmark_q5"),
    ("flink", "nexmark_q5_count"),
    ("flink", "session_window"),
    ("flink", "sample"),
    ("flink", "distinct"),
    ("flink", "shufflebench"),
    ("spark", "statistics"),
    ("spark", "wordcount"),
    ("spark", "nexmark_q7"),
    ("spark", "nexmark_q5"),
    ("spark", "session_window"),
    ("spark", "sample"),
    ("spark", "distinct"),
    ("spark_dstreams", "statistics"),
    ("spark_dstreams", "wordcount"),
    ("spark_dstreams", "identity"),
]
"""One stream, in `test_generic_job`, as the next ones."""
PAIRS: Final = [
    ("kafka_streams", "nexmark_q20"),
    ("kafka_streams", "nexmark_q4_bids"),
    ("flink", "nexmark_q20"),
    ("spark", "nexmark_q20"),
    ("flink", "nexmark_q4_bids"),
    ("flink", "traffic_join"),
]
"""Interval joins."""
JOINED: Final = [
    ("flink", "nexmark_q3"),
    ("flink", "nexmark_q8"),
]
"""Joins in windows."""
STAGES: Final = [
    ("kafka_streams", "nexmark_q4"),
    ("kafka_streams", "traffic_lanes"),
    ("flink", "nexmark_q4_winners"),
    ("flink", "nexmark_q5_max"),
    ("flink", "traffic_changes"),
]
"""Stages of chains, after the earlier ones on the reference engine."""
KILLED: Final = frozenset([*PGVALS, *ALONE, *PAIRS, *JOINED, *STAGES])
