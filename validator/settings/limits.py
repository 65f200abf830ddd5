"""Limits on the size of a record and on the number of records in a batch."""

from __future__ import annotations

from pydantic import Field

from validator.settings.fields import Frozen


class Limits(Frozen):
    """Limits on the size of records and batches."""

    records_per_batch: int = Field(default=2_000_000, ge=1)
    """Maximum number of records that one batch reads, over all topics."""
    value_bytes: int = Field(default=16_777_216, ge=1, le=268_435_456)
    """Largest value that is parsed, uncompressed. The content of a larger one is unknown, and so is the verdict."""
    key_bytes: int = Field(default=16_384, ge=1, le=1_048_576)
    """Longest key that is kept, as UTF-8. A record with a longer key is not examined."""
    id_bytes: int = Field(default=4_096, ge=1, le=1_048_576)
    """Longest id that is kept, with the same effect."""
    worker_bytes: int = Field(default=2_147_483_648, ge=402_653_184)
    """Maximum heap of one worker (one per core of Spark). A record that does not fit is skipped, and the verdict is
    unknown."""
