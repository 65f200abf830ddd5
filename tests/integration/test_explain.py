"""`explain` for one event and one cell, from a real state, for a terminal."""

from __future__ import annotations

import json

import pytest

from tests.integration.sidecar_fixtures import Pipeline, answer, click, iso
from validator.model.cut import shorten
from validator.model.terminal import OBEYED
from validator.publish import explain, redaction

LONG = "long " * 200
ODD = "it's \x1b[2J\n\x9b31m\u202e'7"


@pytest.mark.timeout(300)
def test_explain_lists_the_history_of_an_event_and_of_a_cell(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 2), click(ODD, 3, ODD), click(LONG, 4, LONG))
    pipeline.answers(answer([1, 1]), answer([ODD, ODD], 0, ODD), answer([LONG, LONG], 0, LONG))
    assert pipeline.once().status == 1
    capsys.readouterr()

    def explained(wanted: str | tuple[str, ...]) -> tuple[int, str, str]:
        status = explain.run(pipeline.spark, pipeline.state(), wanted)
        said = capsys.readouterr()
        return status, said.out, said.err

    status, story, _ = explained("1")
    assert status == 0
    assert story.startswith("Event 1\n")
    assert f"{pipeline.input}-0 at offset 0" in story
    assert f"result in {pipeline.output}-0 at offset 0 (contains the id 2 times), for cell" in story
    assert "duplicate confirmed, before any fault" in story

    status, cell, _ = explained((f"{iso(0)}Z", "a"))
    assert status == 0
    assert cell.startswith("Cell a of the window that starts at 1970-01-01T00:00:00.000000Z\n")
    assert "1 missing" in cell

    status, odd, _ = explained(ODD)
    assert status == 0
    assert odd.startswith("Event it's \\x1b[2J\\x0a\\x9b31m\\u202e'7\n")
    assert OBEYED.findall(odd.replace("\n", "")) == []

    secret = redaction.secret_of(pipeline.state())
    for text in ("1", ODD, shorten(LONG)):
        status, again, _ = explained(redaction.hashed(secret, text))
        assert (status, again) == explained(text)[:2]
    hashed_key = redaction.hashed(secret, shorten(LONG))
    assert explained((f"{iso(0)}Z", hashed_key)) == explained((f"{iso(0)}Z", shorten(LONG)))

    status, nothing, complaint = explained("\x1b[2J")
    assert (status, nothing) == (3, "")
    assert " id \\x1b[2J " in complaint

    # A long id or key is shortened where it is published. It still identifies the whole one.
    listed = json.loads((pipeline.state() / "violations.json").read_text())["violations"]
    shown = next(entry for entry in listed if entry["key"] == shorten(LONG))
    assert shown["ids"] == [shorten(LONG)]
    status, story, _ = explained(shorten(LONG))
    assert (status, story.splitlines()[0]) == (0, f"Event {shorten(LONG)}")
    assert "duplicate confirmed" in story
    assert len(story) < 5_000
    status, cell, _ = explained((f"{iso(0)}Z", shorten(LONG)))
    assert (status, cell.splitlines()[0]) == (
        0,
        f"Cell {shorten(LONG)} of the window that starts at 1970-01-01T00:00:00.000000Z",
    )
