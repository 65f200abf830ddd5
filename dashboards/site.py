"""The generated files: their paths and content, writing them, and finding files that are not current.

``python -m dashboards.site`` writes `dashboards/generated/` and `docs/alerts.md`; with `check` it only compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from dashboards import campaign, faults, overview, pipeline, reference, sidecar
from dashboards.alerts import groups
from dashboards.grafana_rules import FOLDER_TITLE, ORGANIZATION, provisioning_file
from dashboards.panels import Dashboard
from dashboards.rules import dump, prometheus
from dashboards.settings import Settings

ROOT: Final = Path(__file__).parents[1]
GENERATED: Final = ROOT / "dashboards" / "generated"
REFERENCE: Final = ROOT / "docs" / "alerts.md"

_WRITE: Final = "run `python -m dashboards.site`"
RULES_FILE: Final = "prometheus/rules.yaml"
FOLDER_UID: Final = "streamproof"
DATASOURCE_UID: Final = "streamproof-prometheus"
"""Uid of the data source in the provisioning files."""
DASHBOARDS_PATH: Final = "/var/lib/grafana/dashboards/streamproof"
"""Folder of the dashboards in the provisioning file: below the data folder that Grafana's packages and image use."""


def dashboards(settings: Settings) -> tuple[Dashboard, ...]:
    """The dashboards for production."""
    return tuple(module.dashboard(settings) for module in (overview, pipeline, faults, sidecar))


def files(settings: Settings) -> dict[str, str]:
    """Path below the target folder -> content."""
    boards = {f"grafana/dashboards/{board.uid}.json": _text(board) for board in dashboards(settings)}
    campaigns = campaign.dashboard(settings)
    return {
        RULES_FILE: prometheus(groups(settings), settings),
        **boards,
        f"grafana/campaigns/{campaigns.uid}.json": _text(campaigns),
        "grafana/provisioning/alerting/streamproof.yaml": provisioning_file(settings, DATASOURCE_UID),
        "grafana/provisioning/dashboards/streamproof.yaml": dump({"apiVersion": 1, "providers": [_provider()]}),
        "grafana/provisioning/datasources/streamproof.yaml": dump({"apiVersion": 1, "datasources": [_datasource()]}),
    }


def _text(board: Dashboard) -> str:
    return json.dumps(board.build(), indent=2, ensure_ascii=False) + "\n"


def _provider() -> dict[str, object]:
    return {
        "name": "streamproof",
        "orgId": ORGANIZATION,
        "folder": FOLDER_TITLE,
        "folderUid": FOLDER_UID,
        "type": "file",
        "allowUiUpdates": False,
        "options": {"path": DASHBOARDS_PATH},
    }


def _datasource() -> dict[str, object]:
    return {
        "name": "Prometheus (streamproof)",
        "uid": DATASOURCE_UID,
        "type": "prometheus",
        "access": "proxy",
        "url": "http://localhost:9090",
        "jsonData": {"httpMethod": "POST", "timeInterval": "15s"},
    }


def write(folder: Path, settings: Settings) -> list[Path]:
    """Write every file below ``folder``; returns the paths. Raises OSError."""
    written = []
    for name, text in files(settings).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def differences(folder: Path, settings: Settings) -> list[str]:
    """A sentence for each file below ``folder`` that is missing, out of date or not generated."""
    wanted = files(settings)
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    found = [f"{folder / name} does not exist; {_WRITE}" for name in wanted if name not in present]
    found += [
        f"{folder / name} is not current; {_WRITE}"
        for name in wanted
        if name in present and (folder / name).read_text(encoding="utf-8") != wanted[name]
    ]
    return found + [f"{folder / name} is not a generated file; remove it" for name in sorted(present - set(wanted))]


def main(arguments: list[str]) -> int:
    """Write the repository's generated files, or compare them with `check`; the exit status."""
    settings = Settings()
    if arguments != ["check"]:
        write(GENERATED, settings)
        REFERENCE.write_text(reference.render(settings), encoding="utf-8")
        return 0
    found = differences(GENERATED, settings)
    if not REFERENCE.is_file() or REFERENCE.read_text(encoding="utf-8") != reference.render(settings):
        found.append(f"{REFERENCE} is not current; {_WRITE}")
    for sentence in found:
        sys.stderr.write(f"{sentence}.\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
