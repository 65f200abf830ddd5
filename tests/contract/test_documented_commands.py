"""The argument parser accepts every `streamproof` command line in the documentation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from validator.cli.parser import parse
from validator.cli.refused import UNBUILT_COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

TABLE_OF_COMMANDS = ROOT / "docs" / "CONTRACT.md"
"""Lists the forms of commands, with alternatives and options in brackets, which are not command lines."""
LAW = ROOT / "docs" / "SEMANTICS.md"
NOT_BUILT = {refused.command for refused in UNBUILT_COMMANDS}


@dataclass(frozen=True)
class Said:
    page: Path
    line: int
    command: str
    is_whole: bool
    """Whether a reader may paste it. In a sentence, the name of a command may stand without its arguments."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.command}"


def commands_in(page: Path) -> Iterator[Said]:
    """Yield commands in code blocks (after a prompt or bare), and in inline code."""
    in_block = False
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip().startswith("```"):
            in_block = not in_block
            continue
        if in_block:
            if found := re.match(r"\s*(?:\$ )?(streamproof .*)", line):
                yield Said(page, number, joined(found[1], lines[number:]), is_whole=True)
        else:
            for found in re.finditer(r"`(streamproof [^`]+)`", line):
                yield Said(page, number, found[1], is_whole=False)


def joined(first: str, following: list[str]) -> str:
    """Return the command with its continuation lines."""
    command = first
    for line in following:
        if not command.endswith("\\"):
            break
        command = command[:-1] + line.strip()
    return command


def arguments_of(command: str) -> list[str]:
    """Return the arguments without a comment, a redirection or a pipe."""
    words = shlex.split(command, comments=True)[1:]
    end = next((i for i, word in enumerate(words) if word in (">", "|", "&", "&&", ";")), len(words))
    return words[:end]


def said() -> list[Said]:
    pages = [page for page in PAGES if page not in (TABLE_OF_COMMANDS, LAW)]
    return [
        command
        for page in pages
        for command in commands_in(page)
        # The demo's output begins with the name and the version.
        if not re.match(r"streamproof \d", command.command)
    ]


def test_there_are_commands_to_check() -> None:
    found = said()
    assert len(found) > 40
    assert {one.page.parent.name for one in found} >= {"docs", "runbooks"}


@pytest.mark.parametrize("one", said(), ids=str)
def test_every_documented_command_is_accepted_by_the_parser(one: Said, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = arguments_of(one.command)
    if arguments[0] in NOT_BUILT:
        pytest.fail(f"{one}: it is not supported, and the page tells readers to run it")
    try:
        parse(arguments)
    except SystemExit:
        refusal = capsys.readouterr().err
        if one.is_whole or "arguments are required" not in refusal:
            pytest.fail(f"{one}: {refusal}")


def test_a_wrong_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Run `streamproof reprot STATE`.\n```console\n$ streamproof ack STATE \\\n  V --reason 'a b' | jq\n```\n"
    )
    wrong, right = commands_in(page)
    with pytest.raises(SystemExit):
        parse(arguments_of(wrong.command))
    assert parse(arguments_of(right.command)).reason == "a b"


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, in the form of the common repository hosts."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_pages_has_a_target() -> None:
    broken = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        there = page if not path else (page.parent / path)
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []
