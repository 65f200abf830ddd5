"""The searches of a campaign for what each cell sustains: a trial is a run without a fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from faults.section import text_of
from testbed.campaign import counters, search
from testbed.campaign.counters import Row
from testbed.campaign.journal import CampaignJournal
from testbed.campaign.matrix import Run
from testbed.campaign.one_run import OutOfTime
from testbed.campaign.plan import CampaignPlan
from testbed.campaign.result import RunResult
from testbed.campaign.sampler import GROUP, Sample
from testbed.campaign.search import Found, Observed, Search, Trial
from validator.model.wording import plural
from validator.publish.atomic import replace_file
from validator.stream.failures import first_line

FILE: Final = "search.md"
_PHASES: Final = ("control", "failure", "recovery")


class Trials(Protocol):
    """What runs a trial: `CampaignEnvironment`."""

    def trial(self, run: Run, plan: CampaignPlan) -> tuple[RunResult, list[Sample], list[Row]]:
        """Do one run by ``plan``."""


def describe(plan: CampaignPlan, rules: Search, chosen: Sequence[Run], each_seconds: float) -> str:
    """The searches, and how long they take at most. ``each_seconds``: a trial without its load."""
    trial = each_seconds + plan.of_trial(rules.limits[0]).phases.seconds_most
    most = rules.trials_most * len(chosen)
    searches = f"{len(chosen)} {'search' if len(chosen) == 1 else 'searches'}"
    bound = f"at most {text_of(round(most * trial, -1))} ({text_of(round(trial))} per trial, an estimate)"
    lines = [f"{searches}, at most {plural(rules.trials_most, 'trial')} each; {bound}"]
    lines += [f"  {run.name}{'  done' if found_of(plan, rules, run) is not None else ''}" for run in chosen]
    return "\n".join(lines)


def do(
    plan: CampaignPlan, rules: Search, chosen: Sequence[Run], kept: CampaignJournal, environment: Trials,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Do the searches of ``chosen`` that have not ended. Raises the errors of a run: a trial without a result ends the
    campaign, which can be resumed.
    """
    unit = search.EVENTS if rules.instances is None else search.INSTANCES
    for run in chosen:
        remembered = {trial.rate: trial for trial in search.read(plan.results, run.name)}

        def attempt(rate: int, run: Run = run, remembered: dict[int, Trial] = remembered) -> Trial:
            if rate not in remembered:
                one, tried, began = replace(run, rate=rate), plan.on(run.cell.axes).of_trial(rate), time.monotonic()
                kept.append("started", run=one.name)
                try:
                    found, samples, counted = environment.trial(one, tried)
                    trial = search.judged(tried.rate, observed(found, samples, counted, tried), rules)
                except OutOfTime as error:
                    trial = Trial(rate, sustained=False, because=first_line(error).rstrip(".:"))
                except BaseException as error:
                    kept.append("failed", run=one.name, reason=f"{type(error).__name__}: {error}")
                    raise
                kept.append("done", run=one.name)
                remembered[rate] = replace(trial, rate=rate)
                search.write(plan.results, run.name, list(remembered.values()))
                took = text_of(round(time.monotonic() - began))
                say(f"{run.name}: {rate} {unit}: {remembered[rate].because} ({took})")
            return remembered[rate]

        end = search.search(rules, attempt)
        more = "the limit of what was tried" if end.failed is None else f"and not {end.failed}"
        say(f"{run.name}: sustained: {end.sustained} {unit}, {more}")
        write(plan, rules, chosen)


def observed(found: RunResult, samples: Sequence[Sample], counted: Sequence[Row], plan: CampaignPlan) -> Observed:
    """What was seen of a trial, while its load lasted and without its warm-up."""
    phases = plan.phases
    begin_us = found.phases_begin_us or 0
    lag = [
        ((sample.time_us - begin_us) / 1e6, float(sample.lag_events))
        for sample in samples
        if sample.process == GROUP and sample.lag_events is not None
    ]
    lengths = (phases.control, phases.failure, phases.recovery)
    starts = (phases.warm_up, phases.warm_up + phases.control, phases.warm_up + phases.control + phases.failure)
    measured = {phase.phase: phase.latency_p50_seconds for phase in found.phases}
    latency = [
        (start + length / 2, seconds)
        for name, start, length in zip(_PHASES, starts, lengths, strict=True)
        if (seconds := measured.get(name)) is not None
    ]
    during = [point for point in lag if phases.warm_up <= point[0] <= phases.seconds]
    begin, end = (begin_us + round(seconds * 1e6) for seconds in (phases.warm_up, phases.seconds))
    return Observed(
        found.offered_per_second or 0.0, during, latency, found.settled, counters.batch_seconds(counted, begin, end),
        plan.timeouts_of(found.engine).commit_interval_seconds,
    )  # fmt: skip


def write(plan: CampaignPlan, rules: Search, chosen: Sequence[Run]) -> Path:
    """Write the table of all searches. Raises OSError."""
    path = plan.results / FILE
    replace_file(path, search.markdown([(run.name, found_of(plan, rules, run)) for run in chosen]))
    return path


def found_of(plan: CampaignPlan, rules: Search, run: Run) -> Found | None:
    """The end of a search, from the trials that are kept; None if trials are missing."""
    remembered = {trial.rate: trial for trial in search.read(plan.results, run.name)}
    try:
        return search.search(rules, remembered.__getitem__)
    except KeyError:
        return None
