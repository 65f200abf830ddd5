"""Text that users read keeps to docs/style.md. A page that is rewritten is added to `PAGES`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/ARCHITECTURE.md",
    "docs/CONTRACT.md",
    "docs/SEMANTICS.md",
    "docs/alerts.md",
    "docs/bench/README.md",
    "docs/campaigns.md",
    "docs/chaos-toolkit/README.md",
    "docs/decisions/*.md",
    "docs/engines.md",
    "docs/faults.md",
    "docs/generator.md",
    "docs/guide/README.md",
    "docs/install.md",
    "docs/kubernetes.md",
    "docs/mutations.md",
    "docs/operations.md",
    "docs/oracles/*.md",
    "docs/python.md",
    "docs/report.md",
    "docs/results/README.md",
    "docs/runbooks/*.md",
    "docs/security.md",
    "docs/sizing.md",
    "docs/spark-cluster.md",
    "docs/systemd.md",
    "docs/threat-model.md",
)
FORBIDDEN = re.compile(
    r"\b(mend(s|ed|ing)?|told|tells|nobody|of before|on the average|so long as|comes? again|came again|(was|were) gone"
    r"|(is|are) not there|is no (JSON|number|text|state|run|verdict|loss|violation|event|record))\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", sorted(page for pattern in PAGES for page in ROOT.glob(pattern)), ids=lambda p: p.stem)
def test_a_page_has_no_forbidden_word(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    found = [f"{number}: {match[0]}" for number, line in enumerate(lines, 1) for match in FORBIDDEN.finditer(line)]
    assert not found, f"{page.relative_to(ROOT)} has words that docs/style.md forbids: {found}"
