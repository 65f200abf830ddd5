"""The table "Change the configuration" in docs/operations.md has every setting, as the identity of a state does."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.publish_snapshots import config
from validator.config.model import Config
from validator.state.identity import identity_of

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def settings_of_the_row(effect: str) -> set[str]:
    """The settings in the first cell of the row whose second cell begins with ``effect``."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Change the configuration\n")
    [row] = re.findall(rf"^\| (`.*) \| {effect}", section, re.MULTILINE)
    return set(re.findall(r"`([\w.]+)`", re.sub(r"\(.*\)", "", row)))


def test_the_table_of_changes_has_every_setting(tmp_path: Path) -> None:
    refused = settings_of_the_row("describe another pipeline")
    assert refused == set(identity_of(config(tmp_path))) - {"schema"}
    free = settings_of_the_row("may change: the sidecar continues") | settings_of_the_row("is used only for a new")
    assert free - {"state.retention"} == set(Config.model_fields) - refused - {"state"}
    assert settings_of_the_row("names another state") | {"state.retention"} == {"state.path", "state.retention"}
