"""The contents of a campaign plan, and the runs that follow from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from generator.workloads.kinds import named
from testbed.campaign import command, scheduled
from testbed.campaign.matrix import matrix, only, runs
from testbed.campaign.plan import CONTROL_WINDOWS_LEAST, PlanError, load
from testbed.run_files import Topics
from tests.unit.campaign_results import PLAN, plan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"engines": ["kafka"]}, "engines: there is no engine kafka; "),
        ({"engines": ["flink", "flink"]}, "engines: "),
        ({"faults": ["drought"]}, "faults: there is no fault drought; use none, "),
        ({"schedules": {"crash": {}}}, "schedules: crash is the name of a fault"),
        ({"schedules": {"two": {"targets": {}}}}, "schedules.two.targets: "),
        ({"repetition": 3}, "repetition: is not a known key"),
        ({"phases": {"control": "9s"}}, "phases.control is shorter than 10 windows"),
        ({"phases": {"control": 30}}, "phases.control: a duration "),
        ({"faults": ["pause_above_timeout"], "phases": {"failure": "8s"}}, "kafka_streams is 6s; use 9s"),
        ({"timeouts": "vogel"}, "profile vogel of timeouts; use local, pgval"),
        ({"engines": ["storm"], "timeouts": "shufflebench"}, "Profile shufflebench has no timeouts"),
        ({"parallelism": 1, "faults": ["pause_above_timeout"]}, "parallelism 1"),
        ({"rate": 6, "window": "500ms"}, "rate is too low for one click"),
        ({"workloads": ["mst"], "rate": 40}, "rate is too low for one update"),
        ({"workloads": ["mst"], "rate": 3000, "update_percent": 0.1}, "rate is too low for one update"),
        (
            {"workloads": ["mst"], "faults": ["none"], "search": {"rates": [40, 9000]}},
            "search.rates is too low for one update",
        ),
        ({"suppress": True}, "suppress waits for the end of a grace period; set grace"),
        ({"shape": "waves"}, "shape: there is no waves; use constant"),
        ({"shapes": {"fast": {"shape": "max"}}}, "shapes: fast: constant is the plan's own rate; "),
        ({"shapes": {"batches": {"shape": "micro_batches"}}}, "batches: events_per_second: Field required; "),
        ({"hot_share": 0.5}, "hot_share: sst has no hot keys; remove it, or use NexMark's workloads"),
        ({"parallelism": 6}, "parallelism: "),
        ({"parallelism": 3}, "partitions (2) is below parallelism (3)"),
        ({"engine_options": {"reference": {"a": "b"}}}, "reference has no options; use flink"),
        (
            {"engine_options": {"flink": {"high-availability.type": "kubernetes"}}},
            "high-availability.type kubernetes; ",
        ),
        ({"engines": ["spark"], "engine_options": {"spark": {"spark.master": "yarn"}}}, "use local or standalone"),
        ({"engines": ["reference"], "poison": "fail"}, "poison: reference always skips; use skip, or other engines"),
        ({"axes": {"storm.topology.workers": [1]}}, "storm is not one of engines; remove storm.topology.workers"),
        ({"axes": {"kafka.acks": ["all"]}}, "axes.kafka.acks: kafka.acks is not an axis; use rate, "),
        ({"workloads": ["nexmark_q55"]}, "workloads.0: there is no workload nexmark_q55; did you mean nexmark_q5."),
        (
            {"workloads": [{"kind": "shufflebench", "rulez": 2}]},
            "workloads.0: shufflebench has no parameter rulez; did you mean rules.",
        ),
        ({"workloads": [{"kind": "sst", "rules": 2}]}, "workloads.0: sst has no parameter rules; leave it out."),
        ({"workloads": [{"kind": "shufflebench", "rules": 0}]}, "workloads.0: rules: Input should be greater than 0."),
        (
            {"workloads": [{"kind": "nexmark_q5", "hot_share": 0.3}], "hot_share": 0.4},
            "hot_share is a parameter of nexmark_q5 and a key of the plan; remove one.",
        ),
        ({"workloads": ["traffic_join"], "keys": 12}, "keys must be 6 with traffic_join"),
        ({"workloads": ["traffic_lanes"], "keys": 12}, "keys must be 6 with traffic_join"),
        ({"workloads": ["nexmark_q5_max"], "rate": 6, "window": "500ms"}, "in every window of nexmark_q5_count; "),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan(**changes)
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_workloads_may_have_parameters_of_their_own() -> None:
    given = plan(workloads=["shufflebench", {"kind": "shufflebench", "rules": 200, "zipf": 0.4}], faults=["none"])
    assert given.workloads == ("shufflebench", "shufflebench:rules=200,zipf=0.4")
    cells = matrix(given).cells
    assert len({cell.name for cell in cells}) == len(cells) == 8
    chosen = only(runs(cells, given), ["workload=shufflebench:rules=200,zipf=0.4", "engine=flink"])
    assert {run.cell.workload for run in chosen} == {"shufflebench:rules=200,zipf=0.4"}
    of = Topics(named(chosen[0].cell.workload)).workload
    assert (of.kind, of.parameters) == ("shufflebench", {"rules": 200, "zipf": 0.4})
    assert given.on((("rate", "4000"),)).workloads == given.workloads


def test_one_wrong_fault_of_a_plan_is_one_problem() -> None:
    with pytest.raises(PlanError) as refused:
        plan(faults=["drought"])
    assert "more)" not in str(refused.value)


def test_results_are_stored_beside_the_plan_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    path.write_text("engines: [reference]\nguarantees: [exactly_once]\nfaults: [none]\n", encoding="utf-8")
    assert load(path).results == tmp_path / "night-results"


def test_the_shipped_plans_are_valid() -> None:
    plans = {path.stem: load(path) for path in (ROOT / "bench" / "plans").glob("*.yaml")}
    assert len(matrix(plans["pgval"]).cells) == 2 * 7 * 3  # SST and MST; Storm has no exactly-once
    assert plans["pgval"].repetitions == 3
    assert len(runs(matrix(plans["crash"]).cells, plans["crash"])) == 4
    assert matrix(plans["quick"]).cells
    published = {"pgval", "ospbench", "streambench", "vogel", "shufflebench", "lopez", "qian"}
    assert {name for name, one in plans.items() if one.repeats} == published
    assert all(matrix(plans[name]).cells for name in published)


def test_every_suite_has_a_small_scale_with_results_of_its_own() -> None:
    for path in sorted((ROOT / "bench" / "plans").glob("*.yaml")):
        whole = load(path)
        assert bool(whole.repeats) == ("small" in whole.scales)
        for scale in whole.scales:
            small = load(path, scale)
            assert len(matrix(small).cells) * small.repetitions < len(matrix(whole).cells) * whole.repetitions
            assert small.results.name == f"{whole.results.name}-{scale}"
            assert small.phases.control >= 2 * CONTROL_WINDOWS_LEAST * small.window


def test_a_wrong_value_of_a_scale_is_named_with_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(yaml.safe_dump({**PLAN, "scales": {"tiny": {"rate": 1}}}), encoding="utf-8")
    assert load(path).rate == 3000
    with pytest.raises(PlanError, match=r"night.yaml \(scale tiny\).*: rate: "):
        load(path, "tiny")
    with pytest.raises(PlanError, match=r"it has no scale small; its scales are tiny\.$"):
        load(path, "small")


def test_cells_that_an_engine_cannot_run_are_left_out_with_the_reason() -> None:
    found = matrix(plan(engines=["storm", "flink"]))
    assert {(cell.engine, cell.guarantee) for cell in found.cells} == {
        ("storm", "at_least_once"),
        ("flink", "at_least_once"),
        ("flink", "exactly_once"),
    }
    assert found.left_out == ("storm does not support exactly_once, only at_least_once or at_most_once.",)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"engines": ["storm", "flink"], "guarantees": ["at_most_once", "exactly_once"], "faults": ["none"]}, None),
        ({"engines": ["storm"], "guarantees": ["exactly_once"]}, "engines: .*with storm"),
    ],
)
def test_a_value_without_any_cell_is_refused(changes: dict[str, Any], sentence: str | None) -> None:
    if sentence is None:
        assert matrix(plan(**changes)).left_out
        return
    with pytest.raises(PlanError, match=sentence):
        matrix(plan(**changes))


def test_an_engine_is_left_out_of_workloads_that_its_job_does_not_compute() -> None:
    found = matrix(plan(engines=["reference", "storm", "spark"], workloads=["sst", "nexmark_q7"], faults=["none"]))
    assert {(cell.engine, cell.workload) for cell in found.cells} == {
        *((engine, workload) for engine in ("reference", "spark") for workload in ("sst", "nexmark_q7")),
        ("storm", "sst"),
    }
    assert any(sentence.startswith("storm has no nexmark_q7 ") for sentence in found.left_out)
    with pytest.raises(PlanError, match=r"workloads: .* storm has no nexmark_q7"):
        matrix(plan(engines=["storm"], workloads=["sst", "nexmark_q7"]))


def test_a_workload_whose_keys_are_in_several_partitions_is_left_out_with_several_instances() -> None:
    given = {
        "engines": ["reference"],
        "workloads": ["shufflebench"],
        "guarantees": ["exactly_once"],
        "faults": ["none"],
    }
    found = matrix(plan(**given, axes={"parallelism": [1, 2]}))
    assert [cell.setting for cell in found.cells] == ["parallelism 1"]
    sentence = "reference runs shufflebench with parallelism 1 only, because partitions share its keys."
    assert found.left_out == (sentence,)
    with pytest.raises(PlanError, match=rf"reference is possible.* {sentence}"):
        matrix(plan(**given))


def test_a_plan_waits_longer_than_its_faults_hold_results_back(tmp_path: Path) -> None:
    path = tmp_path / "hasty.yaml"
    head = "engines: [reference]\nguarantees: [exactly_once]\nphases: {failure: 20s}\nmissing_after: 20s\n"
    path.write_text(head + "faults: [crash]\n", encoding="utf-8")
    with pytest.raises(PlanError, match=r"missing_after .* phases.failure \(20s\)"):
        load(path)
    path.write_text(head + "faults: [none]\n", encoding="utf-8")
    assert load(path).missing_after == 20


def test_axes_make_a_cell_for_each_combination() -> None:
    wanted = plan(engines=["flink"], guarantees=["exactly_once"], axes={"rate": [600, 1200], "window": ["1s", "2s"]})
    found = matrix(wanted).cells
    assert len(found) == 2 * 4
    assert found[0].name == "flink-sst-exactly_once-none-rate600-window1s"
    assert [(on.rate, on.window) for on in (wanted.on(cell.axes) for cell in found[:4])] == [
        (600, 1.0), (600, 2.0), (1200, 1.0), (1200, 2.0),
    ]  # fmt: skip
    everything = runs(found, wanted)
    assert len({run.name for run in everything}) == len(everything)
    assert {run.cell.setting for run in only(everything, ["rate=600"])} == {
        "rate 600, window 1s",
        "rate 600, window 2s",
    }


SHAPES: dict[str, Any] = {
    "batches": {"shape": "micro_batches", "events_per_second": 1},
    "once": {"shape": "single_burst", "events_per_second": 0.5, "burst_events_per_second": 3, "burst": "20s"},
}


def test_the_shapes_of_a_rate_and_the_share_of_hot_keys_are_axes() -> None:
    wanted = plan(
        engines=["flink"], guarantees=["exactly_once"], faults=["none"], workloads=["nexmark_q12"], shapes=SHAPES,
        axes={"shape": ["constant", "batches", "once"], "hot_share": [0, 0.9]},
    )  # fmt: skip
    plans = [wanted.on(cell.axes) for cell in matrix(wanted).cells]
    assert [one.hot_share for one in plans] == [0, 0.9] * 3
    assert [one.rate_section for one in plans[::2]] == [
        None,
        {"shape": "micro_batches", "events_per_second": 3000},
        {"shape": "single_burst", "events_per_second": 1500, "burst_events_per_second": 9000, "burst": "20s"},
    ]


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ({"rate": [600, 3]}, r"axes \(rate 3\): rate: "),
        ({"window": ["1s", "5s"]}, r"axes \(window 5s\): phases.control is shorter than 10 windows"),
        ({"colour": ["red"]}, "axes.colour"),
        ({"rate": []}, "axes.rate"),
    ],
)
def test_an_axis_with_a_value_that_cannot_be_used_is_refused(
    tmp_path: Path, axes: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "wide.yaml"
    path.write_text(yaml.safe_dump({**PLAN, "axes": axes}), encoding="utf-8")
    with pytest.raises(PlanError, match=sentence):
        load(path)


UNALIGNED = "flink.execution.checkpointing.unaligned.enabled"


def test_an_option_of_an_engine_is_an_axis_of_its_cells_only() -> None:
    wanted = plan(
        faults=["none"], guarantees=["exactly_once"], repetitions=1, engine_options={"flink": {"a": 1}},
        axes={UNALIGNED: [True, False], "standby": [0, 1]},
    )  # fmt: skip
    everything = runs(matrix(wanted).cells, wanted)
    flink = [run.cell for run in everything if run.cell.engine == "flink"]
    assert [run.cell.axes for run in everything[:2]] == [(("standby", "0"),), (("standby", "1"),)]
    assert [dict(wanted.on(cell.axes).engine_options["flink"]) for cell in flink[::2]] == [
        {"a": "1", "execution.checkpointing.unaligned.enabled": "true"},
        {"a": "1", "execution.checkpointing.unaligned.enabled": "false"},
    ]
    assert [wanted.on(cell.axes).standby for cell in flink] == [0, 1, 0, 1]
    assert only(everything, [f"{UNALIGNED}=true"]) == everything[2:4]


OF_SIDECAR = {"kind": "sidecar_kill", "target": "sidecar"}
KILLS: dict[str, Any] = {
    "engines": ["flink"], "guarantees": ["exactly_once"], "repetitions": 1, "parallelism": 5, "partitions": 5,
    "faults": ["crash", "four", "often", "both"],
    "schedules": {
        "four": {"plan": {"name": "vogel-kill-4", "faster": 10}},
        "often": {"schedule": {"control": "20s", "recovery": "40s", "repeat": 3, "faults": [
            {"kind": "process_kill", "target": {"labels": {"role": "worker"}}, "for": "5s"}]}},
        "both": {"schedule": {"control": "20s", "faults": [{"for": "10s", "together": [
            {"kind": "net_delay", "target": {"name": "flink-link"}, "parameters": {"delay": "1s"}},
            {"kind": "process_pause", "target": {"labels": {"role": "worker"}, "pick": 2}, "after": "2s"}]}]}},
    },
}  # fmt: skip


def test_a_schedule_of_a_plan_has_its_faults_without_the_waits_that_the_phases_replace() -> None:
    wanted = plan(**KILLS)
    found = {run.cell.name: run for run in runs(matrix(wanted).cells, wanted)}
    scenarios = {
        name: scheduled.scenario(run.cell, wanted, run.seed) for name, run in found.items() if "crash" not in name
    }
    four, often, both = (scenarios[f"flink-sst-exactly_once-{name}"] for name in ("four", "often", "both"))
    assert [len(step.fault.targets) for step in four.timeline.steps] == [4] * 10
    assert four.timeline.seconds == pytest.approx(9 * 30)
    assert [step.wait_seconds for step in often.timeline.steps] == [0, 60, 60]
    assert often.timeline.seconds == 135
    assert [fault.kind for _, fault in both.timeline.steps[0].parts] == ["net_delay", "process_pause"]
    assert (both.workers, both.link_names) == (5, ("flink-link",))
    crash, times = found["flink-sst-exactly_once-crash"], command._seconds_most
    assert times(wanted, found["flink-sst-exactly_once-often"]) - times(wanted, crash) == 135 - wanted.phases.failure
    assert "about " in command.describe(wanted, matrix(wanted), tuple(found.values()))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"parallelism": 4},
            r"^faults: no combination with four .* its faults need 5 workers of flink, .* are 4\.",
        ),
        ({"missing_after": "12s"}, r"both: missing_after must be above "),
        ({"brokers": 3}, r"both: through a link .* reaches only one broker; use brokers: 1"),
        (
            {"schedules": {"four": {"schedule": {"faults": [OF_SIDECAR]}}}},
            "a fault of the sidecar",
        ),
        ({"schedules": {"four": {"schedule": {"faults": [{"kind": "drought"}]}}}}, "four.*drought"),
    ],
)
def test_a_schedule_that_a_cell_cannot_have_is_refused(changes: dict[str, Any], sentence: str) -> None:
    given = {**KILLS, **changes, "phases": {"failure": "5s"}}
    wanted = plan(**{**given, "faults": [name for name in given["faults"] if name in (*given["schedules"], "crash")]})
    with pytest.raises(PlanError, match=sentence):
        command.describe(wanted, matrix(wanted), runs(matrix(wanted).cells, wanted))


def test_cells_with_a_standby_that_an_engine_cannot_have_are_left_out() -> None:
    wanted = plan(engines=["kafka_streams", "storm"], guarantees=["at_least_once"], faults=["none"],
                  axes={"standby": [0, 1], "parallelism": [1, 2]})  # fmt: skip
    found = matrix(wanted)
    assert [cell.setting for cell in found.cells if cell.engine == "storm"] == [
        "standby 0, parallelism 1", "standby 0, parallelism 2",
    ]  # fmt: skip
    assert [cell.setting for cell in found.cells if cell.engine == "kafka_streams"][2:] == ["standby 1, parallelism 2"]
    assert "storm has no standby instances." in found.left_out
    with pytest.raises(PlanError, match=r"with four is possible.* flink has no standby instance in a run with a sche"):
        matrix(plan(**KILLS, standby=1))


def test_cells_that_cannot_have_a_grace_period_are_left_out() -> None:
    given = {"workloads": ["sst", "mst"], "guarantees": ["exactly_once"], "faults": ["none"], "suppress": True}
    with pytest.raises(PlanError, match=r"engines: no combination with flink is possible.* flink has no grace period"):
        matrix(plan(**given, grace="1s"))
    with pytest.raises(PlanError, match=r"with mst is possible.* kafka_streams has no grace period in mst"):
        matrix(plan(**given, engines=["kafka_streams"], axes={"grace": ["0s"]}))
    chosen = {**given, "workloads": ["sst"], "axes": {"grace": ["1s", "500ms"], "suppress": [True, False]}}
    wanted = plan(engines=["kafka_streams"], **chosen)
    found = [(one.grace_ms, one.suppress) for one in (wanted.on(cell.axes) for cell in matrix(wanted).cells)]
    assert found == [(1000, True), (1000, False), (500, True), (500, False)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"engines": ["kafka_streams"], "standby": 1}, "with parallelism 1 there is none"),
        ({"engines": ["reference"], "workloads": ["shufflebench"]}, "runs shufflebench with parallelism 1 only"),
    ],
)
def test_a_search_for_instances_that_an_engine_cannot_have_is_refused(changes: dict[str, Any], sentence: str) -> None:
    def wanted(fewest: int, **more: Any) -> Any:
        search = {"instances": [fewest, 3]}
        return plan(**{"guarantees": ["exactly_once"], "faults": ["none"], "partitions": 3, "search": search, **more})

    assert matrix(wanted(2, engines=["kafka_streams"], standby=1)).cells
    # The number of the plan is not that of any trial.
    for parallelism in (1, 2):
        with pytest.raises(PlanError, match=sentence):
            matrix(wanted(1, parallelism=parallelism, **changes))


def test_an_engine_that_cannot_have_a_schedule_is_left_out() -> None:
    found = matrix(plan(**{**KILLS, "engines": ["flink", "spark"], "faults": ["crash", "four"]}))
    assert [(cell.engine, cell.fault) for cell in found.cells] == [
        ("flink", "crash"), ("flink", "four"), ("spark", "crash"),
    ]  # fmt: skip
    assert any("spark" in sentence for sentence in found.left_out)


def test_intervals_of_a_plan_replace_those_of_the_profile_and_heartbeats_follow_the_session() -> None:
    wanted = plan(engines=["flink"], timeouts="pgval", axes={"session_timeout": ["6s"], "commit_interval": ["500ms"]})
    times = wanted.on(wanted.combinations("flink")[0]).timeouts_of("flink")
    assert (times.session_timeout_seconds, times.heartbeat_interval_seconds) == (6.0, 2.0)
    assert (times.commit_interval_seconds, times.transaction_timeout_seconds) == (0.5, 30.0)


def test_the_name_of_a_cell_fits_a_topic_and_differs_from_that_of_any_other() -> None:
    values = ["org.example.A$Inner", "org.example.A/Inner", "x" * 300, "x" * 299 + "y"]
    wanted = plan(engines=["storm"], guarantees=["at_least_once"], faults=["none"], axes={"storm.a": values})
    names = {run.name for run in runs(matrix(wanted).cells, wanted)}
    assert len(names) == len(values) * wanted.repetitions
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,140}", name) for name in names)


def test_every_cell_runs_once_before_any_is_repeated() -> None:
    wanted = plan()
    everything = runs(matrix(wanted).cells, wanted)
    assert len({run.name for run in everything}) == len(everything) == 2 * 2 * 2 * 2
    assert [run.repetition for run in everything] == [1] * 8 + [2] * 8


def test_the_seed_spreads_the_instant_of_injection() -> None:
    def instants(seed: int) -> list[float]:
        wanted = plan(seed=seed, repetitions=30, engines=["flink"], guarantees=["exactly_once"], faults=["crash"])
        return [run.instant_within(2.0) for run in runs(matrix(wanted).cells, wanted)]

    assert instants(1) == instants(1) != instants(2)
    assert min(instants(1)) < 0.5 < 1.5 < max(instants(1)) < 2.0


def test_only_selects_the_runs_that_match_every_key() -> None:
    wanted = plan()
    everything = runs(matrix(wanted).cells, wanted)
    assert [run.name for run in only(everything, ["engine=flink", "fault=crash", "repetition=2"])] == [
        "flink-sst-at_least_once-crash-2",
        "flink-sst-exactly_once-crash-2",
    ]
    assert only(everything, ["engine=flink,kafka_streams"]) == everything


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("flink", "write KEY=VALUE, as in --only engine=flink,storm"),
        ("engine=storm", "engine storm; .*flink, kafka_streams"),
        ("rate=5", "keys are engine, workload"),
    ],
)
def test_only_refuses_a_value_that_the_plan_does_not_have(text: str, sentence: str) -> None:
    wanted = plan()
    with pytest.raises(PlanError, match=sentence):
        only(runs(matrix(wanted).cells, wanted), [text])


def test_a_setup_of_an_engine_is_an_axis_and_its_leader_a_target() -> None:
    axis = "flink.high-availability.type"
    wanted = plan(engines=["kafka_streams", "flink"], guarantees=["exactly_once"], repetitions=1,
                  faults=["crash_leader", "often"], schedules={"often": KILLS["schedules"]["often"]},
                  axes={axis: ["NONE", "zookeeper"]})  # fmt: skip
    found = matrix(wanted)
    assert [(cell.engine, cell.fault, cell.setting) for cell in found.cells] == [
        ("kafka_streams", "often", ""),
        ("flink", "crash_leader", f"{axis} NONE"),
        ("flink", "crash_leader", f"{axis} zookeeper"),
        ("flink", "often", f"{axis} NONE"),
    ]
    assert found.left_out == (
        "kafka_streams has no process that directs the others, as crash_leader needs.",
        "flink has no run of a schedule of faults with high-availability.type zookeeper.",
    )
    of_spark = plan(engines=["spark"], guarantees=["at_least_once"], axes={"spark.spark.master": ["yarn"]})
    with pytest.raises(PlanError, match=r"axes \(spark.spark.master yarn\).* use local or standalone"):
        matrix(of_spark)
