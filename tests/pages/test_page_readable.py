"""Access to the status page: by keyboard, screen reader, phone and wall display, in both colour schemes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.pages.chromium import Browser, needs_chromium
from tests.pages.contrast import CONTRAST
from tests.pages.served_page import PAINTED, Served
from tests.pages.story import LOST, REPEATED, SECONDS, at
from validator.model.snapshot import Snapshot

pytestmark = needs_chromium


@pytest.mark.full
def test_plots_show_the_whole_history(page: Browser, served: Served, snapshots: list[Snapshot]) -> None:
    served.publisher.publish(snapshots[-1])
    page.open(served.url)
    page.wait_until("document.querySelectorAll('canvas').length === 4 && document.querySelector('.u-legend .u-value')")
    page.wait_until("document.querySelector('.frame').getAttribute('aria-label').includes('inputs read now')")
    labels = page.value("[...document.querySelectorAll('.frame')].map((f) => f.getAttribute('aria-label'))")
    assert [label.split(",")[0] for label in labels] == ["Throughput", "Latency", "Outstanding", "Violations"]
    assert f"missing now {LOST}, highest {LOST}" in labels[3]
    assert f"duplicate now {REPEATED}" in labels[3]
    # A canvas without any drawing is fully transparent.
    drawn = """[...document.querySelectorAll('canvas')].map((c) => {
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
        for (let i = 3; i < d.length; i += 4) if (d[i]) n += 1; return n; })"""
    assert min(page.value(drawn)) > 1000


@pytest.mark.full
def test_the_keyboard_reaches_and_reads_the_plots(page: Browser, served: Served, snapshots: list[Snapshot]) -> None:
    served.publisher.publish(snapshots[-1])
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    page.press("Tab")
    assert page.value("document.activeElement.className") == "skip"
    for _ in range(30):  # past the copy buttons
        page.press("Tab")
        if page.value("document.activeElement.className") == "frame":
            break
    page.press("End")
    text = "document.activeElement.getAttribute('aria-valuetext')"
    page.wait_until(f"{text}.startsWith('12:00:00: inputs read')")
    page.press("ArrowLeft")
    page.wait_until(f"{text}.startsWith('11:59:58')")
    pointed = page.value(text)
    served.publisher.publish(replace(snapshots[-1], taken_us=at(SECONDS + 2)))
    page.wait_until("document.querySelector('#when').innerText.includes('12:00:02')")
    assert page.value(text) == pointed, "an update does not move the selected point"
    page.press("ArrowLeft")
    page.wait_until(f"{text}.startsWith('11:59:56')")
    frames = "[...document.querySelectorAll('.frame')]"
    page.wait_until(f"{frames}[1].getAttribute('aria-valuetext').startsWith('12:00:02: p99')")


def test_every_control_has_an_accessible_name(page: Browser, served: Served, snapshots: list[Snapshot]) -> None:
    served.publisher.publish(snapshots[-1])
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            role = node["role"]["value"]
            named.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    assert "Verdict per guarantee" in named["region"]
    assert {"What broke", "Latest violations"} <= set(named["heading"])
    assert all(named["button"])
    for role in ("image", "img"):
        assert all(named.get(role, []))
    assert [name.split(",")[0] for name in named["slider"]] == ["Throughput", "Latency", "Outstanding", "Violations"]
    assert named["main"]
    assert all(named["columnheader"])


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (768, "dark"), (1280, "dark"), (1920, "light")])
def test_no_width_scrolls_sideways(
    page: Browser, served: Served, snapshots: list[Snapshot], width: int, scheme: str
) -> None:
    served.publisher.publish(snapshots[-1])
    page.window(width, 900, scheme)
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    page.value(PAINTED)
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("Math.max(...[...document.querySelectorAll('canvas')].map((c) => c.clientWidth))") < width


@pytest.mark.full
def test_a_wall_display_holds_verdict_findings_and_plots(
    page: Browser, served: Served, snapshots: list[Snapshot]
) -> None:
    served.publisher.publish(snapshots[-1])
    page.window(1920, 1080, "dark")
    page.open(served.url)
    page.wait_until(
        "document.querySelectorAll('.finding').length === 2 && document.querySelector('.u-legend .u-value')"
    )
    page.value(PAINTED)
    for part in ("verdicts", "findings", "plots"):
        place = page.value(f"document.querySelector('#{part}').getBoundingClientRect().toJSON()")
        assert place["height"] > 50, part
        assert 0 <= place["top"] < place["bottom"] <= 1080, f"{part} ends at {place['bottom']:.0f} px"


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(page: Browser, served: Served, snapshots: list[Snapshot], scheme: str) -> None:
    served.publisher.publish(snapshots[-1])
    page.window(1280, 900, scheme)
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    assert page.value(CONTRAST) == []
