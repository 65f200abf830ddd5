"""The search for the sustainable rate, on an engine stub whose capacity is known."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.campaign.counters import batch_seconds
from testbed.campaign.plan import PlanError
from testbed.campaign.search import INSTANCES, Found, Observed, Search, Trial, judged, markdown, read, search, write
from tests.unit.campaign_results import plan

pytestmark = pytest.mark.unit


def stub(capacity: float, rate: int, rules: Search, *, commits: int, seed: int, has_lag: bool = True) -> Observed:
    """An engine that handles ``capacity`` events a second and commits every few seconds, under a noisy load."""
    draw, queue, committed, lag, latency = Random(seed), 0.0, 0.0, [], []
    sent = done = 0.0
    for second in range(int(rules.trial)):
        arrived = rate * draw.uniform(0.9, 1.1)
        sent += arrived
        handled = min(queue + arrived, capacity * draw.uniform(0.95, 1.05))
        queue += arrived - handled
        done += handled
        if second % commits == 0:
            committed = done
        lag.append((float(second), sent - committed))
        if second % 5 == 4:
            latency.append((float(second), 0.2 + queue / capacity + draw.uniform(0, 0.05)))
    return Observed(sent / rules.trial, lag if has_lag else [], latency, settled=queue < 30 * capacity)


@given(
    capacity=st.integers(700, 18_000),
    commits=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 2**32),
    has_lag=st.booleans(),
)
@settings(deadline=None)
def test_the_capacity_of_a_stub_is_found_within_five_percent(
    capacity: int, commits: int, seed: int, *, has_lag: bool
) -> None:
    rules = Search(rates=(500, 20_000), within=0.02)
    tried: list[int] = []

    def attempt(rate: int) -> Trial:
        tried.append(rate)
        seen = stub(capacity, rate, rules, commits=commits, seed=seed + rate, has_lag=has_lag)
        return judged(rate, seen, rules)

    found = search(rules, attempt)
    assert found.sustained is not None
    assert found.failed is not None
    assert 0.95 * capacity <= found.sustained <= 1.05 * capacity
    assert len(tried) == len(set(tried)) <= rules.trials_most


@given(each=st.integers(300, 3000), rate=st.integers(1000, 9000), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_fewest_instances_of_a_stub_are_found(each: int, rate: int, seed: int) -> None:
    rules = Search(instances=(1, 5))
    tried: list[int] = []

    def attempt(count: int) -> Trial:
        tried.append(count)
        return judged(rate, stub(count * each, rate, rules, commits=1, seed=seed + count), rules)

    found = search(rules, attempt)
    # A load of more than nine tenths and less than eleven tenths of the capacity may pass or fail.
    enough = [count for count in range(1, 6) if count * each > 1.1 * rate]
    too_few = [count for count in range(1, 6) if count * each < 0.9 * rate]
    assert found.sustained is None or found.sustained not in too_few
    assert not enough or (found.sustained is not None and found.sustained <= enough[0])
    assert len(tried) == len(set(tried)) <= rules.trials_most
    assert found.sustained is None or f" {found.sustained} instances |" in markdown([("a-run", found)])


def test_a_capacity_outside_of_the_rates_is_reported_as_such() -> None:
    rules = Search(rates=(500, 2_000))
    assert search(rules, lambda rate: Trial(rate, sustained=False, because="slow")).sustained is None
    fast = search(rules, lambda rate: Trial(rate, sustained=True, because=""))
    assert (fast.sustained, fast.failed, len(fast.trials)) == (2_000, None, 2)


FLAT = tuple((float(second), 100.0) for second in range(20))


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (Observed(1000, FLAT, FLAT, settled=True), "sustained"),
        (Observed(900, FLAT, FLAT, settled=True), "the load generator sent only 900"),
        (Observed(1000, FLAT, FLAT, settled=False), "not everything was judged in time"),
        (Observed(1000, (), FLAT[:1], settled=True), "neither lag nor latency"),
        (Observed(1000, [(s, 50 * s) for s, _ in FLAT], FLAT, settled=True), "the lag grew by 0.050"),
        (Observed(1000, FLAT, [(s, s / 10) for s, _ in FLAT], settled=True), "the latency grew by 0.100"),
        (Observed(1000, FLAT, FLAT, True, (0.5, 1.25, 1.5), 1.0), "the median batch took 1.25 s, longer than its int"),
        (Observed(1000, FLAT, FLAT, True, (0.5, 0.75, 1.5), 1.0), "sustained"),
        (Observed(1000, FLAT, FLAT, True, (0.5, 1.25, 1.5), 0.0), "sustained"),
    ],
)
def test_each_criterion_alone_fails_a_rate(seen: Observed, reason: str) -> None:
    trial = judged(1000, seen, Search(rates=(1, 2)))
    assert trial.because.startswith(reason)
    assert trial.sustained is (reason == "sustained")


def test_a_batch_counts_once_if_it_had_input_within_the_trial() -> None:
    counted = [(1, 0, 10, 900), (2, 1, 10, 400), (3, 1, 10, 400), (4, 2, 0, 50), (5, 3, 10, 600), (9, 4, 10, 700)]
    rows = [
        (at, "driver-0", name, float(value))
        for at, *values in counted
        for name, value in zip(("batch", "input-rows", "trigger-ms"), values, strict=True)
    ]
    assert batch_seconds([*rows, (3, "reach", "connect-seconds", 0.1)], 2, 5) == [0.4, 0.6]


def test_trials_are_kept_and_shown(tmp_path: Path) -> None:
    trials = [
        Trial(500, sustained=True, because="sustained", lag_slope=0.001),
        Trial(2000, sustained=False, because="no"),
    ]
    write(tmp_path, "a-run", trials)
    assert read(tmp_path, "a-run") == trials
    assert read(tmp_path, "another") == []
    remembered = {trial.rate: trial for trial in trials}
    found = search(
        Search(rates=(500, 2000), within=1), lambda rate: remembered.get(rate, Trial(rate, sustained=True, because=""))
    )
    assert "| a-run | 1,000 | 2,000 | 1.00 | 3 | no |" in markdown([("a-run", found), ("later", None)])


def test_the_rate_of_a_setting_is_shown_as_a_share_of_the_highest_of_its_engine() -> None:
    rates = {"flink-sst-1h": 4000, "flink-sst-1s": 3000, "storm-sst-1s": 9000, "flink-sst-0s": None}
    found = [(name, Found(rate, None, ())) for name, rate in rates.items()]
    shown = markdown(found).splitlines()[2:]
    assert [line.split(" | ")[3] for line in shown] == ["1.00", "0.75", "1.00", "–"]
    assert markdown([("few", Found(2, 1, (), INSTANCES))]).splitlines()[2].split(" | ")[3] == "–"


def test_a_plan_searches_without_faults() -> None:
    assert plan(faults=["none"], search={"rates": [500, 2000]}).search is not None
    with pytest.raises(PlanError, match=r"faults: \[none\]"):
        plan(search={"rates": [500, 2000]})
    with pytest.raises(PlanError, match="rates: the first rate"):
        plan(faults=["none"], search={"rates": [500, 500]})
    few = plan(faults=["none"], partitions=4, search={"instances": [1, 4]})
    assert (few.of_trial(3).parallelism, few.of_trial(3).rate) == (3, few.rate)
    for changes, sentence in (
        ({"search": {"instances": [1, 5]}}, "use at most 5, and as many partitions"),
        ({"search": {"instances": [1, 2]}, "axes": {"parallelism": [1]}}, "remove axes.parallelism"),
        ({"search": {"instances": [1, 2], "rates": [1, 2]}}, "either rates or instances"),
    ):
        with pytest.raises(PlanError, match=sentence):
            plan(faults=["none"], partitions=4, **changes)
