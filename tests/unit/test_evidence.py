"""The kinds of evidence are found by their names, and only their own files distinguish them."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from validator.oracles.seam import Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.evidence.kinds import built, evidence_of
from validator.reconcile.evidence.seam import FIELDS, Evidence

ROOT = Path(__file__).parents[2]
ANOTHER = """
from validator.reconcile.evidence.seam import Shown
from validator.reconcile.evidence.values import Values as _Values

class Totals(_Values):
    names = {"totals": Shown("values", "sums alone")}
"""
USED = """
from validator.reconcile import evidence
evidence.__path__.append(sys.argv[1])
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.schema import json_schema
from validator.reconcile.evidence.kinds import evidence_of
found = evidence_of(loads(EXAMPLES["counts"], "/etc", ["outputs.0.evidence=totals"], {}).oracle)
print(type(found).__name__, found.names_ids, "`totals` (sums alone)" in str(json_schema()))
"""


@pytest.mark.parametrize("name", ["ids", "id", "values"])
def test_an_evidence_is_found_by_the_name_in_the_setting(name: str) -> None:
    oracle = TumblingWindow.of(1).reading(Reads(evidence=name, names_ids=name != "values"))
    found = evidence_of(oracle)
    assert name in found.names
    assert found.names_ids is oracle.reads.names_ids
    assert found.oracle is oracle


def test_another_evidence_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "totals.py").write_text(ANOTHER)
    code = f"import sys{USED}"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False, cwd=ROOT, text=True
    )
    assert ended.stdout.splitlines() == ["Totals False True"], ended.stderr


@pytest.mark.parametrize("one", dict.fromkeys(built().values()))
def test_an_evidence_declares_all_that_the_seam_names(one: type[Evidence]) -> None:
    declared = inspect.get_annotations(Evidence)
    assert declared
    assert [name for name in declared if not hasattr(one, name)] == []
    assert {shown.field for shown in one.names.values()} <= set(FIELDS)


def test_only_the_configuration_and_evidence_name_an_evidence() -> None:
    """Otherwise a new evidence would need changes in ten files."""
    # An oracle may refuse one id where it needs all. Examples and proposals are configurations.
    allowed = {"evidence", "oracles", "config", "proposal"}
    files = [file for file in sorted((ROOT / "validator").rglob("*.py")) if file.parent.name not in allowed]
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in files
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Compare) and getattr(node.left, "attr", "") == "evidence"
    ]
    assert found == []
