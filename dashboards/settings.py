"""Site-specific settings of rules and dashboards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

OBJECTIVE: Final = 0.999
RUNBOOKS: Final = "docs/runbooks"
"""Path of the runbooks in this repository; sidecars serve them too. Set it to the address under which you publish them.
"""
ADDRESS_ALONE: Final = (
    "--grafana: the address must not contain @, ? or #, since every alert shows it; give an address such as "
    "http://localhost:3000, and set the credentials for `push` in GRAFANA_TOKEN, or GRAFANA_USER and GRAFANA_PASSWORD."
)
"""Error text if :func:`has_secret_parts` is true. It does not contain the address, because that may have a password."""


class SettingsError(Exception):
    """An invalid setting; the text is one sentence with the fix."""

    exit_status = 2


@dataclass(frozen=True)
class Settings:
    """``objective_ratio``: share of contributions that must satisfy the declared guarantee, over 30 days. ``runbooks``:
    address of the runbooks folder, without the last slash. ``pipelines``: pipelines that must have a sidecar, even if
    it was never seen. ``grafana``: address of the Grafana with the dashboards; empty if unknown.

    Raises SettingsError for an objective outside (0, 1), an invalid name, and a ``grafana`` that is not an address or
    contains user information, a query or a fragment.
    """

    objective_ratio: float = OBJECTIVE
    runbooks: str = RUNBOOKS
    pipelines: tuple[str, ...] = ()
    grafana: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.objective_ratio < 1:
            raise SettingsError(
                f"--objective: {self.objective_ratio:g} is not between 0 and 1; give a ratio such as {OBJECTIVE}."
            )
        if has_secret_parts(self.grafana):
            raise SettingsError(ADDRESS_ALONE)
        if self.grafana and not re.match(r"https?://\S+$", self.grafana):
            raise SettingsError(f"--grafana: {self.grafana} is not an address; give one such as http://localhost:3000.")
        for name in self.pipelines:
            if not name or name.startswith("$"):
                raise SettingsError(
                    f"--pipeline: {name!r} is not a valid name; use the name in the pipeline's configuration."
                )

    @property
    def budget_ratio(self) -> float:
        """Share of contributions that may break the guarantee."""
        return round(1 - self.objective_ratio, 12)

    @property
    def are_runbooks_links(self) -> bool:
        """Whether ``runbooks`` is an address that a browser can open."""
        return re.match(r"https?://", self.runbooks) is not None

    def runbook(self, alert: str) -> str:
        """Address or path of the runbook of ``alert``."""
        return f"{self.runbooks.rstrip('/')}/{alert}.md"

    def dashboard(self, uid: str) -> str:
        """Link to dashboard ``uid`` for an alert's pipeline (a template); only the uid if the Grafana is unknown."""
        if not self.grafana:
            return uid
        return f"{self.grafana.rstrip('/')}/d/{uid}?var-pipeline={{{{ .Labels.pipeline | urlquery }}}}"


def has_secret_parts(address: str) -> bool:
    """Whether ``address`` contains @, ? or #: it may have user information, a query or a fragment. It
    is not parsed: if a password contains one of these characters, a parser finds a different host.
    """
    return not {"@", "?", "#"}.isdisjoint(address)
