"""Small tables from the driver, as literals in the plan: no Python process and no extra job is started for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType


def literal_frame(spark: SparkSession, rows: Sequence[Mapping[str, object]], schema: StructType) -> DataFrame:
    """A frame of ``rows`` (JSON-able values; absent columns are null)."""
    parsed = F.from_json(F.lit(json.dumps(list(rows))), ArrayType(schema))
    return spark.range(0, 1, 1, 1).select(F.inline(parsed))
