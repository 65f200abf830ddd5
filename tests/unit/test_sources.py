"""How topics are read: what a client may hold at once."""

from __future__ import annotations

import pytest

from validator.stream.sources import READING, reading_of


@pytest.mark.parametrize(("share", "held"), [(1, "1"), (300, "300"), (20_000, "20000"), (2_000_000, "20000")])
def test_a_client_holds_no_more_records_than_a_batch_reads(share: int, held: str) -> None:
    """It decompresses all that it hands over at once, also what no batch reads yet."""
    assert reading_of(share) == {**READING, "kafka.max.poll.records": held}
