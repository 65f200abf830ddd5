"""Names of networks that killed demos left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.backends import relay_namespace
from testbed import node

DEAD = 2**22 + 1
"""No process has this id: Linux assigns none above 2**22."""


def test_the_name_of_a_network_that_no_longer_exists_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a day with a full disk the networks are mounted in another mount namespace, and only their names stay
    visible."""
    monkeypatch.setattr(relay_namespace, "FOLDER", tmp_path)
    own = node._own_name()
    for name in (f"streamproof-{DEAD}-1", own, "somebody-elses"):
        (tmp_path / name).touch()
    node.remove_abandoned()
    assert {path.name for path in tmp_path.iterdir()} == {own, "somebody-elses"}
