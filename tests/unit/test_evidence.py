"""The kinds of evidence are found by their names, and only their own files distinguish them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import get_args

import pytest

from validator.oracles.seam import Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.evidence.kinds import built, evidence_of
from validator.reconcile.evidence.seam import Evidence
from validator.settings import topics

ROOT = Path(__file__).parents[2]


def test_every_value_of_the_setting_has_one_evidence() -> None:
    assert sorted(built()) == sorted(get_args(topics.Evidence))
    names = [name for one in set(built().values()) for name in one.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("states_values", [False, True])
def test_an_evidence_is_found_by_what_results_state(states_values: bool) -> None:
    oracle = TumblingWindow.of(1).reading(Reads(states_values=states_values))
    found = evidence_of(oracle)
    assert found.names_ids is not states_values
    assert found.oracle is oracle


@pytest.mark.parametrize("one", dict.fromkeys(built().values()))
def test_an_evidence_declares_all_that_the_seam_names(one: type[Evidence]) -> None:
    declared = inspect.get_annotations(Evidence)
    assert declared
    assert [name for name in declared if not hasattr(one, name)] == []


def test_only_oracles_and_evidence_ask_whether_results_state_values() -> None:
    """Otherwise a new evidence would need changes in ten files."""
    found = []
    for file in sorted((ROOT / "validator").rglob("*.py")):
        if file.parent.name not in {"oracles", "evidence"}:
            found += [
                f"{file.relative_to(ROOT)}:{node.lineno}"
                for node in ast.walk(ast.parse(file.read_bytes()))
                if isinstance(node, ast.Attribute) and node.attr in {"states_values", "checks_values"}
            ]
    assert found == []
