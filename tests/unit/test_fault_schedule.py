"""The timeline of a seed, with its groups, budgets and distances."""

from __future__ import annotations

from typing import Any

import pytest

from faults.config import parse
from faults.errors import FaultRefused
from faults.fault import Timeline
from faults.runner import paced
from tests.unit.fault_schedules import LINKS, WORKERS, configured, of_plan, planned, worker

KILL = {"kind": "process_kill", "target": {"labels": {"role": "worker"}}, "for": "10s"}


def test_one_seed_gives_one_timeline() -> None:
    config = configured({"control": "5s", "recovery": "5s", "repeat": 20, "faults": [KILL]})
    assert planned(config, 7) == planned(config, 7)
    targets = [step.fault.target_names for step in planned(config, 7).steps]
    assert targets != [step.fault.target_names for step in planned(config, 8).steps]
    assert len(set(targets)) > 1


def test_each_fault_of_each_cycle_has_its_control_and_recovery() -> None:
    made = planned(
        configured({"warm_up": "3s", "control": "5s", "recovery": "7s", "repeat": 2, "faults": [KILL, KILL]})
    )
    assert [step.wait_seconds for step in made.steps] == [8, 12, 12, 12]
    assert made.recovery_seconds == 7
    assert made.seconds == 3 + 4 * (5 + 10 + 7)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"type": "process", "pid": 5}, "restart w"),
        ({"type": "process", "pid_file": "w.pid"}, "restart w"),
        ({"type": "process", "pid_file": "w.pid", "supervised": True}, "before the duration in for: has passed"),
    ],
)
def test_a_kill_that_could_not_be_healed_in_time_is_refused(target: dict[str, Any], words: str) -> None:
    fault = {"kind": "process_kill", "target": "w", "for": "5s"}
    with pytest.raises(FaultRefused, match=words):
        planned(parse({"targets": {"w": target}, "schedule": {"faults": [fault]}}))


@pytest.mark.parametrize("seed", range(50))
def test_random_faults_stay_within_their_budgets(seed: int) -> None:
    lasts = {"at_least": "2s", "at_most": "30s"}
    budget = {"length": "300s", "faults_at_most": 8, "down_at_most": "60s", "gap": {"at_least": "5s", "at_most": "20s"}}
    made = planned(configured({"warm_up": "10s", "random": budget, "faults": [{**KILL, "for": lasts}]}), seed)
    assert 1 <= len(made.steps) <= 8
    assert sum(step.lasts_seconds for step in made.steps) <= 60
    assert made.seconds <= 310
    assert all(5 <= step.wait_seconds <= 20 for step in made.steps[1:])
    assert all(2 <= step.lasts_seconds <= 30 for step in made.steps)
    assert made == planned(configured({"warm_up": "10s", "random": budget, "faults": [{**KILL, "for": lasts}]}), seed)


@pytest.mark.parametrize("budget", [{"length": "20s", "down_at_most": "90s"}, {"length": "90s", "down_at_most": "20s"}])
def test_a_budget_that_holds_no_fault_is_refused(budget: dict[str, Any]) -> None:
    given = {"faults_at_most": 8, "gap": {"at_least": "1s", "at_most": "5s"}} | budget
    with pytest.raises(FaultRefused, match=r"random: seed 3 .* length"):
        planned(configured({"random": given, "faults": [{**KILL, "for": "30s"}]}), 3)


ONE = {"kind": "process_kill", "target": {"labels": {"role": "worker"}}}
SLOW = {"kind": "net_delay", "target": "link0", "parameters": {"delay": "1s"}}


def grouped(*together: dict[str, Any], **more: Any) -> Timeline:
    return planned(configured({"control": "5s", "faults": [{"together": list(together), "for": "30s"}]}, **more), 3)


def test_the_faults_of_a_group_start_at_their_offsets() -> None:
    made = grouped({**ONE, "after": "2s"}, SLOW, {**ONE, "after": "1500ms"})
    (step,) = made.steps
    assert [(after, fault.kind, fault.name) for after, fault in step.parts] == [
        (0, "net_delay", "net-delay"),
        (1.5, "process_kill", "process-kill"),
        (2, "process_kill", "process-kill-2"),
    ]
    assert (step.fault, step.seconds, made.seconds) == (step.parts[0][1], 32, 37)


def test_a_fault_of_a_group_may_end_before_the_others_or_after_them() -> None:
    slow = {**SLOW, "for": "40s"}
    (step,) = grouped(slow, {**ONE, "after": "2s", "for": "5s"}, {**ONE, "after": "1s"}).steps
    assert [(after, step.seconds_of(after, fault)) for after, fault in step.parts] == [(0, 40), (1, 31), (2, 5)]
    assert (step.lasts_seconds, step.seconds) == (30, 40)
    (step,) = planned(configured({"faults": [{"together": [slow, {**ONE, "for": "5s"}]}]})).steps
    assert step.seconds == 40


@pytest.mark.parametrize("seed", range(20))
def test_two_faults_of_a_group_do_not_share_a_target(seed: int) -> None:
    faults = [{"together": [ONE, ONE, {**ONE, "target": {"labels": {"role": "worker"}, "pick": 3}}]}]
    (step,) = planned(configured({"faults": faults}), seed).steps
    hit = [name for _, fault in step.parts for name in fault.targets]
    assert len(hit) == len(set(hit)) == 5


@pytest.mark.parametrize(
    ("together", "more", "words"),
    [
        ([{**ONE, "target": {"pick": 3}}] * 2, {}, r"process_kill would hit all replicas \(w0, w1, w2, w3, w4, w5\)"),
        ([{**ONE, "target": {"pick": "50%"}}] * 3, {}, "pick: 50% .* 0 targets .* no other fault"),
        ([SLOW, {**SLOW, "kind": "net_reset", "parameters": {}}], {}, "net_reset: link0 .* twice"),
        (
            [{**ONE, "target": "w1"}, {**ONE, "kind": "node_loss", "target": "w0"}],
            {},
            "node_loss: w1 would be hit twice",
        ),
        (
            [{**ONE, "target": {"pick": "leader"}}, ONE],
            {"targets": {"w0": worker(0), "w1": worker(1, leader=True)}},
            r"process_kill would hit all replicas \(w0, w1\)",
        ),
        ([SLOW, ONE], {"limits": {"targets_at_once": 1}}, "net_delay and process_kill would hit 2 targets"),
    ],
)
def test_the_blast_radius_holds_for_a_whole_group(
    together: list[dict[str, Any]], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(FaultRefused, match=words):
        grouped(*together, **more)


def test_a_group_that_names_all_replicas_may_affect_them() -> None:
    (step,) = grouped(*({**ONE, "target": f"w{number}"} for number in range(6))).steps
    assert [fault.target_names for _, fault in step.parts] == ["w0", "w1", "w2", "w3", "w4", "w5"]


def test_two_pressure_faults_may_share_a_machine() -> None:
    memory = {"kind": "memory_pressure", "target": "here", "parameters": {"bytes": "1MiB"}}
    targets = WORKERS | LINKS | {"here": {"type": "machine"}}
    (step,) = grouped({"kind": "cpu_pressure", "target": "here"}, memory, targets=targets).steps
    assert len(step.parts) == 2


def test_the_last_of_a_group_must_be_over_before_the_broker_ends_its_transaction() -> None:
    hang = {"kind": "transaction_hang", "target": "clicks", "parameters": {"timeout": "31s"}}
    clicks = {"clicks": {"type": "topic", "bootstrap_servers": "127.0.0.1:9092", "topic": "click"}}
    grouped(hang, SLOW, targets=WORKERS | LINKS | clicks)
    with pytest.raises(FaultRefused, match=r"transaction_hang: .* timeout of 31 s"):
        grouped(hang, {**SLOW, "after": "1s"}, targets=WORKERS | LINKS | clicks)
    grouped({**hang, "for": "30s"}, {**SLOW, "after": "1s"}, targets=WORKERS | LINKS | clicks)


@pytest.mark.parametrize("seed", range(20))
def test_random_groups_stay_within_the_budget(seed: int) -> None:
    lasts = {"at_least": "2s", "at_most": "20s"}
    group = {"together": [{**ONE, "for": "25s"}, {**SLOW, "after": "10s"}], "for": lasts}
    budget = {"length": "300s", "faults_at_most": 8, "down_at_most": "60s", "gap": {"at_least": "5s", "at_most": "20s"}}
    made = planned(configured({"random": budget, "faults": [group]}), seed)
    assert 1 <= len(made.steps) <= 5
    assert sum(step.seconds for step in made.steps) <= 60


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def starts_of(made: Timeline, took: list[float]) -> list[float]:
    """The starts of the faults if injecting and healing take these numbers of seconds."""
    clock, starts = Clock(), []
    for (step, wait_seconds), extra in zip(paced(made, clock), [*took, 0.0], strict=False):
        clock.now += wait_seconds
        starts.append(clock.now - 1000)
        clock.now += step.seconds + extra
    return starts


def test_the_kills_of_vogel_are_five_minutes_apart_for_any_healing_time() -> None:
    assert starts_of(of_plan("vogel-kill-2"), [20.0] * 9) == [300 * number for number in range(1, 11)]
    assert starts_of(of_plan("vogel-crash-2"), [40.0] * 4) == [300 + 600 * number for number in range(5)]


def test_a_healing_longer_than_the_period_delays_only_the_next_fault() -> None:
    starts = starts_of(of_plan("vogel-kill-1"), [310.0, *[20.0] * 8])
    assert starts == [300, 610, *(610 + 300 * number for number in range(1, 9))]


def test_other_recoveries_start_when_the_fault_is_healed() -> None:
    config = configured({"control": "5s", "recovery": "5s", "repeat": 3, "faults": [KILL]})
    assert starts_of(planned(config), [20.0] * 2) == [5, 5 + 10 + 20 + 10, 2 * (10 + 20 + 10) + 5]
