"""Text that users and contributors read keeps to docs/style.md: pages, strings, docstrings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "style.md"
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {GUIDE})
PACKAGES = ("chaosstreamproof", "dashboards", "faults", "generator", "testbed", "validator")
"""Packages whose strings users read: help, errors, status lines, reports, alerts."""
CODE = (*PACKAGES, "bench", "scripts", "tests")
"""Folders whose docstrings and comments contributors read."""
QUOTED = re.compile(r"`+[^`]+`+")
"""Quoted code, in which any word is allowed."""
TEXTS = (
    "dashboards/generated/**/*.json",
    "dashboards/generated/**/*.yaml",
    "docs/guide/*.yaml",
    "helm/streamproof/templates/NOTES.txt",
    "helm/streamproof/values.yaml",
    "testbed/**/*.java",
    "validator/publish/*.html",
    "validator/stream/*.properties",
)
SCRIPTS = ("validator/publish/page.js", "validator/publish/plots.js")
SCRIPT_PART = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)""", re.DOTALL
)
"""A comment, or a string as its first group."""
WORDS = {
    "anew": r"(?<=[^`])\banew",  # `anew` is also a mark of the state
    "blame": r"blam(e[ds]?|ing)",
    "caught up": r"caught up",
    "close for good": r"clos(e[ds]?|ing) for good",
    "comes again": r"(comes?|came) again",
    "end for good": r"end(s|ed|ing)? for good",
    "is gone": r"(is|are|was|were|be|been|has|have|had) gone",
    "is no JSON": r"(?<!there )is no (JSON|number|text|state|run|verdict|loss|violation|event|record|mapping|list"
    r"|scalar|known|assignment|reference|character|whole|multiple|property|ASCII|UTF-8)",
    "is not there": r"(is|are) not there",
    "kind of error": r"kinds? of errors?",
    "mend": r"mend(s|ed|ing)?",
    "nobody": r"nobody",
    "of before": r"of before",
    "on the average": r"on the average",
    "put right": r"put(s|ting)? (it |them )?right",
    "so long as": r"so long as",
    "strike": r"strik(es?|ing)|struck",
    "take back": r"(tak(e[ns]?|ing)|took) (it |them )?back",
    "tell": r"tells?|telling|told",
}
"""Word or phrase as docs/style.md lists it -> its forms."""
FORBIDDEN = re.compile(rf"\b({'|'.join(WORDS.values())})\b", re.IGNORECASE)


def test_the_style_guide_lists_the_words_that_are_checked() -> None:
    _, guide = GUIDE.read_text(encoding="utf-8").split("## Glossary")
    glossary, rest = guide.split("## Forbidden words")
    columns = [line.split("|")[-2] for line in glossary.splitlines() if line.startswith("|")]
    assert set(re.findall(r"`([^`]+)`", rest.split("## Before")[0])) == set(WORDS)
    assert {word for column in columns for word in re.findall(r"`([^`]+)`", column)} <= set(WORDS)
    assert [word for word in WORDS if FORBIDDEN.search(f"a {word}") is None] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_forbidden_word(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    found = [f"{number}: {match[0]}" for number, line in enumerate(lines, 1) for match in FORBIDDEN.finditer(line)]
    assert not found, f"{page.relative_to(ROOT)} has words that docs/style.md forbids: {found}"


@pytest.mark.parametrize("record", sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")), ids=lambda path: path.stem)
def test_a_decision_has_three_parts_on_one_page(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert [part for part in ("Context", "Decision", "Consequences") if f"**{part}" not in text] == []
    assert len(text.splitlines()) <= 60


def _docstrings(tree: ast.AST) -> list[ast.Constant]:
    """Return all docstrings, including those of attributes: strings that are statements of their own."""
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return [node for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _strings(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each string in ``source`` that has a space: not docstrings, names or keys."""
    tree = ast.parse(source)
    docstrings = set(map(id, _docstrings(tree)))
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        if is_text and id(node) not in docstrings:
            yield node.lineno, node.value


def _remarks(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each docstring and comment in ``source``, without the names that they quote."""
    if FORBIDDEN.search(" ".join(source.split())) is None:
        return  # reading its tokens takes long
    for node in _docstrings(ast.parse(source)):
        yield node.lineno, QUOTED.sub("", str(node.value))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], QUOTED.sub("", token.string)


def _forbidden(texts: Iterable[tuple[int, str]]) -> list[str]:
    """Return line and word of each forbidden word in ``texts``."""
    found = ((line, match[0]) for line, text in texts for match in FORBIDDEN.finditer(" ".join(text.split())))
    return [f"{line}: {word}" for line, word in found]


def test_a_forbidden_word_is_found_in_strings_and_comments_and_not_in_names() -> None:
    source = '''
def tell(told: str) -> str:
    """Nobody reads `told`, ``mend`` or "told"."""
    print(f"{told} is gone; mend that.", told["told"])  # who tells?
    return "the log"  " is not there"
'''
    assert sorted(_forbidden(_strings(source))) == ["4: is gone", "4: mend", "5: is not there"]
    assert sorted(_forbidden(_remarks(source))) == ["3: Nobody", "3: told", "4: tells"]


@pytest.mark.parametrize(
    ("folder", "texts"),
    [*((package, _strings) for package in PACKAGES), *((folder, _remarks) for folder in CODE)],
)
def test_code_has_no_forbidden_word(folder: str, texts: Callable[[str], Iterator[tuple[int, str]]]) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [
        f"{file.relative_to(ROOT)}:{one}"
        for file in files
        for one in _forbidden(texts(file.read_text(encoding="utf-8")))
    ]
    assert not found, f"there are words that docs/style.md forbids: {found}"


@pytest.mark.parametrize("pattern", TEXTS)
def test_a_text_has_no_forbidden_word(pattern: str) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match[0]}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        for match in FORBIDDEN.finditer(line)
    ]
    assert not found, f"texts have words that docs/style.md forbids: {found}"


def _forbidden_in_script(source: str) -> list[str]:
    strings = (
        re.sub(r"\$\{[^{}]*\}", "", part[1]) for part in SCRIPT_PART.finditer(source) if part[1] and " " in part[1]
    )
    return [f"{text}: {match[0]}" for text in strings for match in FORBIDDEN.finditer(text)]


def test_a_forbidden_word_in_a_string_of_a_script_is_found_and_one_in_code_is_not() -> None:
    source = """const told = "a" + `${told} is "it"`; // nobody's\nsay('it tells', "told");"""
    assert _forbidden_in_script(source) == ["'it tells': tells"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_string_of_a_script_has_no_forbidden_word(script: str) -> None:
    found = _forbidden_in_script((ROOT / script).read_text(encoding="utf-8"))
    assert not found, f"{script} has words that docs/style.md forbids: {found}"
