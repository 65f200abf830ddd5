"""The measures of a run's phases and faults: recomputed while they can change, then final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from validator.measure.cost import CostRules, FaultCost, baseline_from, cost_of
from validator.measure.output import SECOND_US, Output, second_after
from validator.measure.phases import PhaseSpan, injected, phases
from validator.measure.series import Series
from validator.model.snapshot import FaultWindow

FAULTS_MAX: Final = 100
"""Number of newest faults whose phases and measures are shown."""
FINAL_MAX: Final = 1_000


@dataclass(frozen=True)
class MeasuredPhase:
    """A phase and its output. ``output`` is None if there was none, or if it is not known (``is_known``). ``seconds``:
    the number of whole seconds of the phase."""

    stretch: PhaseSpan
    output: Output | None
    seconds: int
    is_known: bool


@dataclass
class Ledger:
    """The output of a run over time and the cost of its faults. ``batch``: the newest batch whose results are in it."""

    series: Series = field(default_factory=Series)
    final: dict[str, FaultCost] = field(default_factory=dict)
    batch: int = -1

    @property
    def recovered_us(self) -> dict[str, int]:
        """Recovery instants of faults with a final cost, by id."""
        return {name: cost.recovered_us for name, cost in self.final.items() if cost.recovered_us is not None}

    def measure(
        self, windows: Sequence[FaultWindow], rules: CostRules, *, until_us: int | None
    ) -> tuple[list[MeasuredPhase], dict[str, FaultCost]]:
        """Return the phases in order, and the cost of each fault by its id. Final costs are kept, and old output is
        thinned.

        ``until_us``: up to this instant it is known whether there was output (None: nothing is known yet).
        """
        newest = injected(windows)[-FAULTS_MAX:]
        costs: dict[str, FaultCost] = {}
        recovered_us: dict[str, int] = {}
        open_from_s: list[int] = []
        for window in newest:
            cost = self.final.get(window.id)
            if cost is None and until_us is not None:
                cost = cost_of(window, newest, self.series, rules, until_us=until_us, recovered_us=recovered_us)
                if cost.is_final:
                    self.final[window.id] = cost
                else:
                    open_from_s.append(second_after(window.injected_us or 0) - rules.control_seconds_most)
            if cost is None:
                continue
            costs[window.id] = cost
            if cost.recovered_us is not None:
                recovered_us[window.id] = cost.recovered_us
        while len(self.final) > FINAL_MAX:
            del self.final[next(iter(self.final))]
        stretches = phases(
            newest, recovered_us, None if self.series.since_s is None else self.series.since_s * SECOND_US
        )
        found = [self._measured(stretch, until_us) for stretch in stretches]
        if until_us is not None:
            edges = [second_after(stretch.start_us) for stretch in stretches]
            # The first control phase begins at the end of the warm-up: output is not merged across this instant.
            edges += [edge for edge in (baseline_from(self.series, rules),) if edge is not None]
            self.series.thin(until_us // SECOND_US, min(open_from_s, default=None), edges)
        return found, costs

    def _measured(self, stretch: PhaseSpan, until_us: int | None) -> MeasuredPhase:
        start_s, since_s = second_after(stretch.start_us), self.series.since_s
        until_s = start_s if until_us is None else second_after(until_us)
        end_s = max(start_s, until_s) if stretch.end_us is None else second_after(stretch.end_us)
        if since_s is None or until_us is None or start_s < since_s:
            return MeasuredPhase(stretch, None, end_s - start_s, is_known=False)
        before, last = self.series.last_before(start_s), self.series.last_before(end_s)
        across = any(output is not None and output.end_s > edge for output, edge in ((before, start_s), (last, end_s)))
        # The fault was reported so late that its edge lies in a minute whose seconds are no longer kept one by one.
        if across:
            return MeasuredPhase(stretch, None, end_s - start_s, is_known=False)
        return MeasuredPhase(stretch, self.series.total(start_s, end_s), end_s - start_s, is_known=True)

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "batch": self.batch,
            "fine_from_s": self.series.fine_from_s,
            "cut_s": self.series.cut_s,
            "outputs": [output.to_plain() for output in self.series.outputs.values()],
            "settled": {name: asdict(cost) for name, cost in self.final.items()},
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Return the value that `to_plain` saved."""
        outputs = [Output.from_plain(row) for row in plain["outputs"]]
        final = {
            str(name): FaultCost(**{**kept, "absent_because": tuple(kept["absent_because"])})
            for name, kept in plain["settled"].items()
        }
        return cls(Series.of(outputs, plain["fine_from_s"], plain["cut_s"]), final, plain["batch"])
