"""The mutant engine: the reference with mutations, ``python -m testbed.engines.mutant CONFIG.json ...``.

``mutations`` decides them. The ground truth (``truth``) records them, and is written before the corresponding output is
produced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from testbed.engines import mutations, reference
from testbed.engines.core import LateEvent, Result
from testbed.engines.job import log
from testbed.engines.mutations import EmittedResult
from testbed.engines.truth import TruthWriter


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns 2 if the configuration has no ``truth``."""
    parsed = reference.parse_arguments(arguments, "testbed.engines.mutant")
    settings = reference.read_settings(parsed.config)
    if settings.truth is None:
        log(f"{parsed.config}: truth must name a folder for the ground truth")
        return 2
    with TruthWriter(settings.truth / f"truth-{parsed.instance}.jsonl") as truth:

        def dishonest(answers: Sequence[Result | LateEvent]) -> Iterable[EmittedResult | LateEvent]:
            outcome = mutations.mutate(
                answers,
                settings.rates(),
                settings.mutation_seed,
                operator=settings.operator,
                moved_ms=settings.window_ms,
            )
            (truth.replace_all if settings.emission == "cumulative" else truth.write)(outcome.applied)
            return outcome.emissions

        return reference.run(settings, parsed, dishonest)


if __name__ == "__main__":
    sys.exit(main())
