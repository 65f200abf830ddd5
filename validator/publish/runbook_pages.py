"""The runbooks as pages of the sidecar's server, so that an operator can read them even if they are not published.

`runbooks` is a symbolic link to `docs/runbooks`, so the pages are both data of this package and documentation.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib import resources
from typing import Final

from validator.publish.live_page import resource

FOLDER: Final = "runbooks"
"""Folder in this package."""
_STYLE: Final = "pre { white-space: pre-wrap; overflow-wrap: anywhere; font: .9rem/1.5 ui-monospace, monospace; }"


def runbook_names() -> tuple[str, ...]:
    """Return the alerts that have a runbook."""
    found = (file.name for file in resources.files("validator.publish").joinpath(FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in found if name.endswith(".md")))


def runbook_place(name: str) -> str:
    """Return where the runbook of alert ``name`` is served, relative to the status page."""
    return f"{FOLDER}/{name}"


@cache
def runbook_page(name: str) -> str:
    """Return the runbook of alert ``name`` as HTML: headings, links to other runbooks, and the rest as written."""
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
    # Other pages of the repository are not served.
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", linked)
    return f"<pre>{plain}</pre>"
