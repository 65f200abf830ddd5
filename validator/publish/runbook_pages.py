"""The runbooks as pages beside the status page: readable by whoever was woken up, also where nobody published them.

`runbooks` is a link to `docs/runbooks`: the pages are data of this package, and stay where readers look for them.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib import resources
from typing import Final

from validator.publish.live_page import resource

FOLDER: Final = "runbooks"
"""In this package."""
_STYLE: Final = "pre { white-space: pre-wrap; overflow-wrap: anywhere; font: .9rem/1.5 ui-monospace, monospace; }"


def runbook_names() -> tuple[str, ...]:
    """The alerts that have a runbook."""
    found = (file.name for file in resources.files("validator.publish").joinpath(FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in found if name.endswith(".md")))


def runbook_place(name: str) -> str:
    """Where the runbook of alert ``name`` is served, from the status page on."""
    return f"{FOLDER}/{name}"


@cache
def runbook_page(name: str) -> str:
    """The runbook of alert ``name`` as HTML: headings, links to other runbooks, and the rest as it is written."""
    text = resource(f"{FOLDER}/{name}.md")
    parts = [_part(part) for part in re.split(r"^(#+ .*)$", text, flags=re.MULTILINE) if part.strip()]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<title>{name}</title><link rel="icon" href="data:,">',
            f"<style>{resource('style.css')}{_STYLE}</style></head><body>",
            '<p><a href="../">status page</a></p>',
            *parts,
            "</body></html>\n",
        ]
    )


def _part(text: str) -> str:
    marks, _, heading = text.partition(" ")
    if text.startswith("#"):
        return f"<h{len(marks)}>{escape(heading)}</h{len(marks)}>"
    linked = re.sub(r"\[([^]]+)\]\((\w+)\.md\)", r'<a href="\2">\1</a>', escape(text.strip("\n")))
    # Other pages of the repository are not here.
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", linked)
    return f"<pre>{plain}</pre>"
