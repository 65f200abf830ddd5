"""Scripts with which shells complete commands, options and paths."""

from __future__ import annotations

import argparse

import shtab

from validator.cli.parser import build

_FILES = frozenset({"CONFIG", "PLAN", "FILE"})
_FOLDERS = frozenset({"STATE", "FOLDER", "DIR"})


def script(shell: str) -> str:
    """The script for one of the shells that the parser accepts."""
    parser = build()
    _complete_paths(parser)
    return str(shtab.complete(parser, shell))


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                _complete_paths(below)
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
