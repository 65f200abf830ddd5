"""What a site may want otherwise in rules and dashboards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

OBJECTIVE: Final = 0.999
RUNBOOKS: Final = "docs/runbooks"
"""Where the pages are in this repository; a sidecar serves them too. Give the address under which you publish them."""
ADDRESS_ALONE: Final = (
    "--grafana: give the address alone, such as http://localhost:3000, without user and password (an @), ? or #: it"
    " goes into every alert; `push` takes credentials from GRAFANA_TOKEN, or GRAFANA_USER and GRAFANA_PASSWORD."
)
"""What is said of an address that :func:`has_secret_parts` is true of; the address is not, for a password may be in it."""


class SettingsError(Exception):
    """A setting cannot be used; the text is one sentence with the mend."""

    exit_status = 2


@dataclass(frozen=True)
class Settings:
    """``objective_ratio``: share of contributions that must keep the declared guarantee, over 30 days. ``runbooks``:
    address of the folder of runbooks, without the last slash. ``pipelines``: those whose sidecar must be seen, also
    if it never was. ``grafana``: address of the Grafana that has the dashboards; empty where it is not known.

    Raises SettingsError for an objective outside (0, 1), for a name that is none, and for a ``grafana`` that is none or
    holds more than an address.
    """

    objective_ratio: float = OBJECTIVE
    runbooks: str = RUNBOOKS
    pipelines: tuple[str, ...] = ()
    grafana: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.objective_ratio < 1:
            raise SettingsError(
                f"--objective: {self.objective_ratio:g} leaves no error budget to burn; give a ratio between 0 and 1,"
                f" such as {OBJECTIVE}."
            )
        if has_secret_parts(self.grafana):
            raise SettingsError(ADDRESS_ALONE)
        if self.grafana and not re.match(r"https?://\S+$", self.grafana):
            raise SettingsError(f"--grafana: {self.grafana} is no address; give one such as http://localhost:3000.")
        for name in self.pipelines:
            if not name or name.startswith("$"):
                raise SettingsError(f"--pipeline: {name!r} is no name; give it as the pipeline's configuration has it.")

    @property
    def budget_ratio(self) -> float:
        """Share of contributions that may break the guarantee."""
        return round(1 - self.objective_ratio, 12)

    @property
    def are_runbooks_links(self) -> bool:
        """Whether ``runbooks`` is an address that a browser can open from anywhere."""
        return re.match(r"https?://", self.runbooks) is not None

    def runbook(self, alert: str) -> str:
        """Where the runbook of ``alert`` is."""
        return f"{self.runbooks.rstrip('/')}/{alert}.md"

    def dashboard(self, uid: str) -> str:
        """Where the dashboard ``uid`` shows the pipeline of an alert (a template); just its uid without a Grafana."""
        if not self.grafana:
            return uid
        return f"{self.grafana.rstrip('/')}/d/{uid}?var-pipeline={{{{ .Labels.pipeline | urlquery }}}}"


def has_secret_parts(address: str) -> bool:
    """Whether ``address`` has user information, a query or a fragment, read as a person does: a password may hold any
    of the three signs, and then a parser finds another host in it.
    """
    return not {"@", "?", "#"}.isdisjoint(address)
