"""Code and pages cite only paragraphs of docs/SEMANTICS.md and records of docs/decisions that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LAW = DOCS / "SEMANTICS.md"
DECISIONS = DOCS / "decisions"
FOLDERS = (
    "bench",
    "chaosstreamproof",
    "dashboards",
    "faults",
    "generator",
    "image",
    "scripts",
    "testbed",
    "tests",
    "validator",
)
SUFFIXES = {"", ".java", ".js", ".lock", ".py", ".sh", ".yaml"}
PROPERTY = ("reference.py", "clock.py")
"""Files of tests/property in which a number in parentheses is a paragraph of SEMANTICS."""

NUMBER = r"[1-9]\.\d+"
CITED = re.compile(rf"SEMANTICS\s+(?:#\s+)?({NUMBER}(?:(?:,| and| to|, and)\s+(?:#\s+)?{NUMBER})*)")
PARAGRAPH = re.compile(rf"^(?:\*\*|\| )({NUMBER})(?: [^|*]+\.?\*\*|\*\*| \|| `| \*\*)", re.MULTILINE)
RECORD = re.compile(r"(?:docs/decisions/|\bdecisions? )(\d{4})\b")


def paragraphs(law: str) -> list[str]:
    """Return the numbers of the paragraphs, in order."""
    return PARAGRAPH.findall(law)


def cited(text: str) -> Iterator[str]:
    """Yield each paragraph that a text cites as `SEMANTICS n.m`, also in a list or as the bounds of a range."""
    for found in CITED.finditer(text):
        yield from re.findall(NUMBER, found[1])


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def texts() -> Iterator[tuple[str, str]]:
    """Yield (path, text) of the code and of the pages whose citations are checked."""
    pages = [LAW, DOCS / "ARCHITECTURE.md", *DECISIONS.glob("*.md")]
    for path in chain(sources(), pages):
        if path != Path(__file__):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8", errors="replace")


def test_the_paragraphs_of_the_law_are_numbered_without_gaps() -> None:
    numbers = [tuple(map(int, number.split("."))) for number in paragraphs(LAW.read_text(encoding="utf-8"))]
    assert len(numbers) > 100
    for section in {section for section, _ in numbers}:
        mine = [place for at, place in numbers if at == section]
        assert mine == list(range(1, len(mine) + 1)), f"section {section}"


def test_every_paragraph_that_code_or_a_page_cites_exists() -> None:
    known = set(paragraphs(LAW.read_text(encoding="utf-8")))
    pages = [(page.name, page.read_text(encoding="utf-8")) for page in DOCS.rglob("*.md")]
    found = [(path, number) for path, text in (*texts(), *pages) for number in cited(text)]
    assert len(found) > 100
    assert [f"{path}: {number}" for path, number in found if number not in known] == []


def test_every_paragraph_that_the_reference_and_the_law_cite_exists() -> None:
    law = LAW.read_text(encoding="utf-8")
    known = set(paragraphs(law))
    pages = [law, *((ROOT / "tests" / "property" / name).read_text(encoding="utf-8") for name in PROPERTY)]
    in_parentheses = re.compile(rf"\((?:[a-z ]*)({NUMBER}(?:(?:,| to| and)\s+{NUMBER})*)[);]")
    found = [re.findall(NUMBER, group) for page in pages for group in in_parentheses.findall(page)]
    assert len(found) > 50
    assert sorted(set(chain(*found)) - known) == []


def test_a_citation_is_found_in_each_of_its_forms() -> None:
    assert list(cited("# SEMANTICS 3.4: x (SEMANTICS 3.6 to 3.9, and 1), SEMANTICS 4.10, 3.24 and 2.1")) == [
        *("3.4", "3.6", "3.9"),
        *("4.10", "3.24", "2.1"),
    ]
    assert list(cited("    # SEMANTICS\n    # 7.99")) == ["7.99"]
    assert paragraphs("**3.1 A b.** c\n| 1.2 | d |\n**3.2 `e`** f\n3.9 is no paragraph, (3.8) neither") == [
        *("3.1", "1.2", "3.2"),
    ]


def test_every_decision_that_code_cites_exists() -> None:
    known = {path.name[:4] for path in DECISIONS.glob("[0-9]*.md")}
    found = [(path, number) for path, text in texts() for number in RECORD.findall(text)]
    assert found
    assert [f"{path}: {number}" for path, number in found if number not in known] == []


def test_the_index_lists_every_decision_with_its_title() -> None:
    rows = re.findall(r"^\| \[(\d{4})\]\((.*?)\) \| (.*?) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    assert rows == [
        (path.name[:4], path.name, path.read_text(encoding="utf-8").splitlines()[0].removeprefix(f"# {path.name[:4]} "))
        for path in records
    ]
    assert len({path.name[:4] for path in records}) == len(records)


def test_the_code_map_names_every_folder_and_no_other() -> None:
    _, text = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## Code map")
    named = {name for cell in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(.*?)`", cell)}
    assert [name for name in sorted(named) if not (ROOT / name).is_dir()] == []
    packages = {f"validator/{path.parent.name}" for path in (ROOT / "validator").glob("*/__init__.py")}
    assert sorted(packages - named) == []
