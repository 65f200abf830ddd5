"""The report as JUnit XML, for CI systems: one case per guarantee, one per violation class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from validator.model.classes import ViolationClass
from validator.model.terminal import plain, plain_values
from validator.model.violation import Violation
from validator.publish.report_types import Report
from validator.publish.sentences import breaks, headline, some_ids, what_broke
from validator.publish.times import rfc3339

EVIDENCE_SHOWN: Final = 20
IDS_SHOWN: Final = 8


def render(report: Report, violations: Sequence[Violation] = ()) -> str:
    """Return ``report`` as JUnit XML.

    Only a violation of the declared guarantee is a failure. The verdict `unknown` is an error. Another guarantee that
    does not pass is skipped with its verdict, since it must not break a build.
    """
    report = plain_values(report)
    suite = ET.Element("testsuite", name=f"streamproof.{report['pipeline']}")
    if time := report.get("time"):
        suite.set("timestamp", time[:19])
    for name, verdict in report["verdicts"].items():
        _guarantee(suite, report, name, verdict)
    for violation in ViolationClass:
        _violation(suite, report, violation, violations)
    suite.set("tests", str(len(suite)))
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _guarantee(suite: ET.Element, report: Report, name: str, verdict: str) -> None:
    case = ET.SubElement(suite, "testcase", classname="guarantee", name=name)
    if verdict == "pass":
        return
    if name != report["guarantee"]:
        ET.SubElement(case, "skipped", message=f"{verdict}; this is not the declared guarantee")
        return
    found = ET.SubElement(case, "failure" if verdict == "fail" else "error", message=headline(report))
    found.text = "\n".join([*report["reasons"], *what_broke(report)])


def _violation(suite: ET.Element, report: Report, violation: ViolationClass, violations: Sequence[Violation]) -> None:
    case = ET.SubElement(suite, "testcase", classname="violation", name=violation.value)
    confirmed = report["violations"]["confirmed"].get(violation.value) or 0
    if not confirmed:
        return
    records = [record for record in violations if record.violation_class == violation.value]
    evidence = [plain(_evidence(record)) for record in records[:EVIDENCE_SHOWN]]
    if breaks(violation, report["guarantee"]):
        message = f"confirmed violations: {confirmed}; {report['guarantee']} does not allow this class"
        ET.SubElement(case, "failure", message=message).text = "\n".join(evidence)
    else:
        text = f"confirmed violations: {confirmed}; {report['guarantee']} tolerates this class"
        ET.SubElement(case, "system-out").text = "\n".join([text, *evidence])


def _evidence(record: Violation) -> str:
    place = f"{record.id} {record.state} window {rfc3339(record.window_start_us)} key {record.key}"
    after = f" (fault {record.fault})" if record.fault else ""
    ids = f" ids {some_ids(record, IDS_SHOWN)}" if record.ids else ""
    return f"{place}{after}: {record.explanation}{ids}"
