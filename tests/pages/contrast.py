"""Finds text of a page with too little contrast to its background."""

from __future__ import annotations

CONTRAST = """(() => {
  const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const rgb = (s) => s.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
  const light = ([r, g, b]) => .2126 * r + .7152 * g + .0722 * b;
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)/.test(c)) return c;
    }
    return "rgb(255,255,255)"; };
  const found = [];
  for (const e of document.querySelectorAll("main *, header *, #notice *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.offsetParent || e.closest(".unseen")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(rgb(behind(e)))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) found.push([e.tagName, e.className, e.textContent.slice(0, 20), ratio]);
  }
  return found; })()"""
"""JavaScript: tag, class, first words and ratio of each text below the 4.5 to 1 of WCAG 2.2 AA (1.4.3)."""
