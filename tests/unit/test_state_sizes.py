"""Sizes of tables: the sum of all their files, measured at intervals."""

from __future__ import annotations

from pathlib import Path

from validator.state.sizes import EVERY_SECONDS, TableSizes


def test_the_size_of_a_table_is_that_of_its_files_and_is_cached(tmp_path: Path) -> None:
    now = [0.0]
    sizes = TableSizes(tmp_path, lambda: now[0])
    (tmp_path / "facts" / "epoch" / "_delta_log").mkdir(parents=True)
    (tmp_path / "facts" / "epoch" / "part-0").write_bytes(b"x" * 70)
    (tmp_path / "facts" / "epoch" / "_delta_log" / "0.json").write_bytes(b"x" * 30)
    (tmp_path / "verdicts").mkdir()
    (tmp_path / "checkpoint").mkdir()
    assert sizes.recent() == {"facts": 100, "verdicts": 0}
    (tmp_path / "verdicts" / "part-0").write_bytes(b"x" * 5)
    now[0] += EVERY_SECONDS - 1
    assert sizes.recent() == {"facts": 100, "verdicts": 0}
    now[0] += 1
    assert sizes.recent() == {"facts": 100, "verdicts": 5}
