"""A fault that is being healed: asked one thing at a time, and waited for only so long that others need not wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from faults.asked import Asked
from faults.errors import Unreachable
from faults.journal import Entry
from faults.kinds.base import Injection

_ALONE_SECONDS: Final = 1.0
"""Who has not answered by then is waited for beside the others: each is done before the next, where all is well."""
_CALL_SECONDS_MAX: Final = 120.0
"""A call that has not come back by then is not waited for; each backend gives up sooner, target by target."""
_out: Final[dict[str, Asked]] = {}
"""Id of a fault -> the call that is out for it, also when the healing that made it has given up: never two at a time,
which could undo one another or be refused."""


@dataclass(eq=False)
class Patient:
    """A fault that is being healed."""

    entry: Entry
    injected: Injection
    is_mended: bool = False
    """Its healing came back without an error; the proof is another thing."""
    asked: Asked | None = None
    """The call that is out: its healing or, when it is mended, its proof; first that of an earlier healing."""
    is_asked_before: bool = False
    """Whether the call that is out is that of an earlier healing, which says nothing to this one."""
    unanswered: Unreachable | None = None
    """Why it cannot be mended, or seen to be gone, yet."""
    unwritten: OSError | None = None
    """Why the journal does not know yet that it is gone."""

    @property
    def name(self) -> str:
        """As a person reads it."""
        return f"{self.entry.fault.name} on {self.entry.fault.target_names}"

    def is_out_since(self, instant: float) -> bool:
        """Whether a call is out that was made until then."""
        return self.asked is not None and self.asked.began <= instant

    def may_answer(self, instant: float) -> bool:
        """Whether such a call may still come back."""
        return self.asked is not None and self.is_out_since(instant) and self.asked.seconds < _CALL_SECONDS_MAX

    def ask(self) -> bool | None:
        """Mend it or, when it is, look at it: whether it is seen to be gone, None where no answer came yet.

        Raises what the injection raises.
        """
        wait_seconds = 0.0
        if self.asked is None:
            self.asked = _out.get(self.entry.fault.id)
            self.is_asked_before = self.asked is not None
            wait_seconds = _ALONE_SECONDS
        if self.asked is None:
            self.asked = Asked(self.injected.is_gone if self.is_mended else self.injected.heal)
            _out[self.entry.fault.id] = self.asked
        if not self.asked.is_back(wait_seconds):
            return None
        del _out[self.entry.fault.id]
        asked, self.asked = self.asked, None
        if self.is_asked_before:
            return self.ask()
        answer = asked.answer()
        if not self.is_mended:
            self.is_mended = True
            return False
        self.unanswered = None
        return bool(answer)
