"""`explain` for one event and one cell, from the tables of a state, for a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from validator.cli.main import main
from validator.model.cut import shorten
from validator.model.stated_values import Values
from validator.model.terminal import OBEYED
from validator.publish import redaction
from validator.publish.explain import _values
from validator.publish.explain import run as explain
from validator.state import lock

MINUTE_US = 60_000_000
LONG = "long " * 200
ODD = "it's \x1b[2J\n\x9b31m\u202e'7"
FIRST = "1970-01-01T00:00:00.000000Z"

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> FedRun:
    return FedRun(tmp_path)


def story(state: Path, wanted: str | tuple[str, str], printed: Printed) -> list[str]:
    assert explain(state, wanted) == 0
    return printed.readouterr().out.splitlines()


def test_the_history_of_an_event_has_its_records_and_its_cells(run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("click", (1,)), Fed("click", (2,))])
    run.feed([Fed("output", (1, 1)), Fed("lateOutput", (1,))])
    run.end()
    found = story(run.state, "1", capsys)
    assert [line.partition("Z ")[2] or line for line in found[:4]] == [
        "Event 1",
        f"batch 0: read as an input event from click-0 at offset 0, for cell a of {FIRST}",
        f"batch 1: set aside as late in lateOutput-0 at offset 0, for cell a of {FIRST}",
        f"batch 1: carried by a result in output-0 at offset 0 (contains the id 2 times), for cell a of {FIRST}",
    ]
    assert found[4:6] == ["", f"Cell a, which starts at {FIRST}"]
    decided = [line.partition("Z ")[2] for line in found[6:]]
    assert decided[:2] == [
        "batch 1: verdict: 2 expected, 1 processed, 2 duplicate, 1 pending",
        "batch 2: verdict: 2 expected, 1 processed, 2 duplicate, 1 missing",
    ]
    assert [line.partition(": ")[2].partition(": ")[0] for line in decided[2:]] == [
        "duplicate confirmed, before any fault",
        "missing confirmed, before any fault",
    ]
    assert [line.rpartition(" (")[2] for line in decided[2:]] == ["ids 1)", "ids 2)"]


def test_an_event_is_searched_in_all_cells_and_only_as_the_number_or_text_that_it_is(
    run: FedRun, capsys: Printed
) -> None:
    run.feed([Fed("click", (7,), n * MINUTE_US) for n in (2, 0, 1)] + [Fed("click", ("07",)), Fed("click", (8,))])
    number, text = story(run.state, "7", capsys), story(run.state, "07", capsys)
    offsets = [line.partition("at offset ")[2][0] for line in number if "read as an input event" in line]
    assert offsets == ["0", "1", "2"]
    cells = [line.partition("starts at ")[2] for line in number if line.startswith("Cell")]
    assert cells == [f"1970-01-01T00:0{n}:00.000000Z" for n in range(3)]
    assert [line.partition("at offset ")[2][0] for line in text if "read as an input event" in line] == ["3"]
    assert "  not judged yet: the cell is open, or closed too recently to be overdue" in text


def test_an_id_that_no_event_has_and_an_event_that_owes_nothing_are_named(run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("click", (2,), owed=False), Fed("output", (1,))])
    assert "  no input event with this id was read" in story(run.state, "1", capsys)
    assert story(run.state, "2", capsys)[1].endswith(
        "; the condition of the oracle does not hold for this event, or it has no key: no result is expected"
    )


def test_a_history_has_at_most_200_records(run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("output", (1,)) for _ in range(201)])
    found = story(run.state, "1", capsys)
    assert [f"at offset {n}," in line for n, line in enumerate(found[1:201])] == [True] * 200
    assert found[201] == "  no input event with this id was read"


def test_the_history_of_a_cell_has_its_records_by_batch(run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("click", (1,), MINUTE_US)])
    run.feed([Fed("output", (1,), MINUTE_US), Fed("click", (2,), 0)])
    for window in ("1970-01-01T00:01:00Z", str(MINUTE_US)):
        found = story(run.state, (window, "a"), capsys)
        assert found[0] == "Cell a, which starts at 1970-01-01T00:01:00.000000Z"
        assert [line.partition("Z ")[2] for line in found[2:]] == [
            "batch 0: 1 contribution in 1 input record of click-0, offset 0",
            "batch 1: 1 contribution in 1 output record of output-0, offset 0",
        ]


def test_hashes_of_repeated_fields_are_not_shown() -> None:
    hashed = {"count": 2, "sum": "77", "min": "33", "max": "44"}
    paid = {"count": 2, "sum": "7", "min": "3", "max": "4"}
    row = {"aggregates": [hashed, paid], "results": [{"count": 1, "values": ["33", "3"]}]}
    values = Values.of({"status": "same(status)", "paid": "sum(paid)"}, of_one=True)
    assert _values(row, values) == ": 2 numbers from 3 to 4 with sum 7; states 3"
    only = Values.of({"status": "same(status)"}, of_one=True)
    assert _values({"aggregates": [hashed], "results": [{"count": 1, "values": ["33"]}]}, only) == ""


def test_a_long_text_is_found_by_its_published_form(run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("click", (LONG,), key=LONG), Fed("click", (LONG + "x",), key=LONG + "x")])
    short = story(run.state, shorten(LONG), capsys)
    assert short[0] == f"Event {shorten(LONG)}"
    assert short == story(run.state, LONG, capsys)
    assert len([line for line in short if "offset" in line]) == 1
    assert story(run.state, ("0", shorten(LONG)), capsys)[0] == f"Cell {shorten(LONG)}, which starts at {FIRST}"


def test_a_hashed_text_is_found(run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("click", (1,)), Fed("click", (ODD,), key=ODD), Fed("output", ("ghost",)), Fed("output", (-9,))])
    run.feed([Fed("click", (LONG,), key=LONG)])
    secret = redaction.secret_of(run.state)
    for text in ("1", ODD, "ghost", "-9", shorten(LONG)):
        assert story(run.state, redaction.hashed(secret, text), capsys) == story(run.state, text, capsys)
    key = redaction.hashed(secret, shorten(LONG))
    assert story(run.state, ("0", key), capsys) == story(run.state, ("0", shorten(LONG)), capsys)


def test_nothing_that_a_terminal_obeys_is_printed(run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("click", (ODD,), key=ODD)])
    found = story(run.state, ODD, capsys)
    assert found[0] == "Event it's \\x1b[2J\\x0a\\x9b31m\\u202e'7"
    assert OBEYED.findall("".join(found)) == []


@pytest.mark.parametrize("wanted", [["--id", "\x1b[2J"], ["--cell", "-", "a"], ["--cell", "0", "\x1b[2J"]])
def test_what_was_never_read_is_status_3(wanted: list[str], run: FedRun, capsys: Printed) -> None:
    run.feed([Fed("click", (1,))])
    assert main(["explain", str(run.state), *wanted]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "was read (or the state's retention dropped it)" in said.err
    assert OBEYED.findall(said.err[:-1]) == []


def test_a_state_is_explained_while_its_sidecar_holds_the_lock_and_writes(run: FedRun, capsys: Printed) -> None:
    held = lock.acquire(run.state)
    for number in range(3):
        run.feed([Fed("click", (number,))])
        assert main(["explain", str(run.state), "--id", str(number)]) == 0
        assert capsys.readouterr().out.startswith(f"Event {number}\n")
    held.release()
