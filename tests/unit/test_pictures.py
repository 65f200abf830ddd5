"""The pictures of the README and the guide show the current pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.picture_sources import LISTED, SOURCES, changed_since, listing

pytestmark = pytest.mark.unit


def test_the_pictures_show_the_current_pages() -> None:
    changed = changed_since(LISTED.read_text(encoding="utf-8"))
    assert not changed, (
        f"docs/pictures are of an older {', '.join(changed)}: run scripts/screenshots and look at them; where the "
        "change cannot be seen, run python -m tests.pages.picture_sources"
    )


def test_a_changed_page_is_noticed(tmp_path: Path) -> None:
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    listed = listing(tmp_path)
    assert changed_since(listed, tmp_path) == []
    (tmp_path / SOURCES[2]).write_text("other")
    assert changed_since(listed, tmp_path) == [SOURCES[2]]
    assert changed_since("", tmp_path) == list(SOURCES)
