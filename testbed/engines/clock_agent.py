"""The agent that gives a JVM its own clock, which `clock_skew` moves: ``python -m testbed.engines.clock_agent``.

Prints the agent's jar, which is compiled at the first use. A JVM is started with ``-javaagent:JAR=FILE``, where FILE is
the ``clock_file`` of its target (docs/faults.md). The exit status is 2 if the jar cannot be compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from testbed.engines.java_build import CompileError, agent_jar
from validator.stream.jars import PrerequisiteError

_SOURCE: Final = Path(__file__).parent / "java" / "ClockAgent.java"
_MAIN: Final = "streamproof.ClockAgent"


def jar() -> Path:
    """Return the jar. Raises JavacNotFoundError, JavaNotFoundError, CompileError."""
    return agent_jar(_SOURCE, _MAIN)


def main() -> int:
    """Print the jar's path; return the exit status."""
    try:
        print(jar())
    except (PrerequisiteError, CompileError) as error:
        print(f"clock_agent: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
