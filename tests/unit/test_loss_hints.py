"""What lost events have in common: the first ones of a partition, or all after one event far ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.stream.loss_hints import loss_hint

IN, OUT = "click", "output"


def hint(folder: Path, events: list[Fed], answered: list[int]) -> str | None:
    """The hint at the end of a run. ``answered``: the numbers of the events that are in results."""
    run = FedRun(folder)
    run.feed([*events, *[Fed(OUT, events[at].ids, events[at].window_us, events[at].key) for at in answered]])
    shown = run.end()
    lost = [one for one in shown.violations_latest if one.violation_class == "missing" and one.state == "confirmed"]
    return loss_hint(run.runner.judging.known.all_in_memory, lost, shown.violations["confirmed"]["missing"])


def ordered(number: int) -> list[Fed]:
    """Events of one partition, one a minute; each second one has a text as id."""
    return [Fed(IN, (at if at % 2 else f"e{at}",), at * MINUTE_US) for at in range(number)]


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ([3, 4, 5], "The lost events are all the events of click-0 up to offset 2: did the engine"),
        ([], "The lost events are all the events of click-0: did the engine"),
        ([0, 2, 3, 4, 5], None),
        ([0, 3, 4, 5], None),
        ([0, 1, 2, 3, 4], None),
    ],
)
def test_losses_of_the_first_events_of_a_partition_say_so(
    answered: list[int], said: str | None, tmp_path: Path
) -> None:
    found = hint(tmp_path, ordered(6), answered)
    assert (found or "").startswith(said or "")
    assert (found is None) is (said is None)


def test_losses_after_an_event_far_ahead_name_it(tmp_path: Path) -> None:
    events = [*ordered(3), Fed(IN, (90,), 60 * MINUTE_US), *[Fed(IN, (at,), at * MINUTE_US) for at in (7, 8, 9)]]
    found = hint(tmp_path / "all", events, [0, 1, 2, 3])
    assert found is not None
    assert found.startswith("The 3 lost events come after click-0 offset 3, an event of 1970-01-01T01:00:00")
    assert hint(tmp_path / "one before", events, [0, 1, 3]) is None


def test_nothing_is_said_of_losses_that_are_not_all_known(tmp_path: Path) -> None:
    run = FedRun(tmp_path)
    run.feed(ordered(3))
    shown = run.end()
    facts = run.runner.judging.known.all_in_memory
    assert loss_hint(facts, shown.violations_latest, 3) is not None
    assert loss_hint(facts, shown.violations_latest, 4) is None
    assert loss_hint(facts, shown.violations_latest[1:], 3) is None
    run.runner.judging.known.forget(run.runner.progress.batch + 1)
    assert loss_hint(run.runner.judging.known.all_in_memory, shown.violations_latest, 3) is None
