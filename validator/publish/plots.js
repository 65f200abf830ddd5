"use strict";
// The timeline: plots over one axis of time, faults shaded, restarts dashed. Needs uPlot.
const Timeline = (() => {
  const SPANS = [["15 min", 900], ["2 h", 7200], ["24 h", 86400]];
  const PLOTS = [
    { title: "Throughput", unit: "events per second", lines: [["inputs read", "read_per_second", "--c1"], ["processed", "processed_per_second", "--c3"]] },
    { title: "Latency", unit: "seconds", latency: true, lines: [["p99", "latency_p99_seconds", "--c2"], ["p50", "latency_p50_seconds", "--c1"]], dots: true },
    { title: "Outstanding", unit: "events not answered or not explained", counts: true, lines: [["pending", "pending", "--c6"], ["overdue", "overdue", "--c2"],
      ["not explained", "unresolved", "--c5"], ["blocked", "blocked", "--c1"], ["unconsumed", "unconsumed", "--c3"]] },
    { title: "Violations", unit: "confirmed so far", counts: true, lines: [["missing", "missing", "--c4"], ["duplicate", "duplicate", "--c2"],
      ["misplaced", "misplaced", "--c5"], ["unknown id", "unknown_id", "--c1"], ["undecodable", "undecodable", "--c6"]] },
  ];
  const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3], [1, 2]];
  // Steps of the axis of a count: whole numbers only.
  const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();
  const grouped = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const clock = (t) => new Date(t * 1000).toISOString().slice(11, 19);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const unitOf = (plot) => plot.latency && definition ? `${plot.unit} from ${definition.replaceAll("_", " ")} to the result` : plot.unit;
  const shown = (v) => v === null || v === undefined ? "–" : grouped.format(v);
  let columns = [], rows = [], faults = [], restarts = [], span = SPANS[0][1], charts = [], definition = null, place, plots = PLOTS;

  const index = (name) => columns.indexOf(name);
  const last = () => rows.length ? rows[rows.length - 1][0] : 0;
  const inView = () => { const from = last() - span; return rows.filter((row) => row[0] >= from); };
  function data(plot, view) { return [view.map((r) => r[0]), ...plot.lines.map(([, name]) => view.map((r) => r[index(name)]))]; }

  function shade(u) {
    const { ctx, bbox } = u, x = (t) => u.valToPos(t, "x", true), right = bbox.left + bbox.width;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    ctx.fillStyle = colour("--fault");
    for (const f of faults) {
      const from = x(f.from), to = f.to === null ? right : x(f.to);
      // A very short fault must be visible.
      ctx.fillRect(from, bbox.top, Math.max(2 * devicePixelRatio, to - from), bbox.height);
    }
    ctx.strokeStyle = colour("--dim"); ctx.setLineDash([4, 4]); ctx.lineWidth = devicePixelRatio;
    for (const t of restarts) { ctx.beginPath(); ctx.moveTo(x(t), bbox.top); ctx.lineTo(x(t), bbox.top + bbox.height); ctx.stroke(); }
    ctx.restore();
    name(ctx, bbox, x);
  }
  // A name that would overlap the previous one is not drawn. The table of faults has it.
  function name(ctx, bbox, x) {
    ctx.save();
    ctx.fillStyle = colour("--dim"); ctx.textBaseline = "top"; ctx.textAlign = "left"; ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    let free = bbox.left;
    for (const f of [...faults].sort((a, b) => a.from - b.from)) {
      const width = ctx.measureText(f.name).width, left = Math.min(Math.max(bbox.left, x(f.from)), bbox.left + bbox.width - width);
      const ends = f.to === null ? bbox.left + bbox.width : x(f.to);
      if (ends < bbox.left || left < free) continue;
      ctx.fillText(f.name, left, bbox.top - 14 * devicePixelRatio);
      free = left + width + 8 * devicePixelRatio;
    }
    ctx.restore();
  }
  // A value between two gaps has no visible line, so it gets a dot.
  function alone(u, series) {
    const values = u.data[series], gap = (v) => v === null || v === undefined;
    return values.flatMap((v, i) => !gap(v) && gap(values[i - 1]) && gap(values[i + 1]) ? [i] : []);
  }
  function options(plot, width) {
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    return {
      width, height: 190, padding: [20, 30, 0, 0], tzDate: (t) => uPlot.tzDate(new Date(t * 1000), "Etc/UTC"),
      cursor: { sync: { key: "time" }, points: { size: 7 }, drag: { x: false, y: false } },
      scales: {
        x: { time: true, range: () => { const from = rows.length ? Math.max(rows[0][0], last() - span) : 0; return [from, Math.max(last(), from + 10)]; } },
        // The scale begins at 0 and is never empty: if all values are 0, the line is at the bottom.
        y: { range: (u, low, high) => [0, high > 0 ? high * 1.25 : 1] },
      },
      axes: [{ ...axis, space: 70, size: 30, values: (u, ticks) => ticks.map((t) => clock(t).slice(0, span > 900 ? 5 : 8)) },
        { ...axis, size: 56, ...(plot.counts ? { incrs: WHOLE } : {}), values: (u, ticks) => ticks.map((v) => short.format(v)) }],
      series: [{ label: "time", value: (u, t) => t === null ? "–" : clock(t) }, ...plot.lines.map(([label, , tone], i) => ({
        label, stroke: colour(tone), width: 2, dash: DASHES[i], value: (u, v) => shown(v),
        // A count holds until the next point. A rate or a latency is that of the time since the previous point.
        paths: uPlot.paths.stepped(plot.counts ? { align: 1 } : { align: -1, alignGaps: -1 }),
        points: plot.dots ? { show: true, size: 5, fill: colour(tone), filter: alone } : { show: false },
      }))],
      hooks: { drawClear: [shade] },
    };
  }
  function summary(plot, view) {
    return plot.lines.map(([label, name]) => {
      const values = view.map((r) => r[index(name)]).filter((v) => v !== null);
      if (!values.length) return `${label} not known`;
      return `${label} now ${shown(values[values.length - 1])}, highest ${shown(Math.max(...values))}`;
    }).join("; ");
  }
  function build() {
    charts.forEach((c) => c.u.destroy());
    place.replaceChildren();
    charts = plots.map((plot) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption"), unit = document.createElement("span"), frame = document.createElement("div");
      caption.textContent = plot.title + " "; unit.textContent = unitOf(plot); caption.append(unit);
      frame.className = "frame"; frame.tabIndex = 0; frame.setAttribute("role", "slider");
      figure.append(caption, frame); place.append(figure);
      const u = new uPlot(options(plot, Math.max(200, frame.clientWidth)), data(plot, inView()), frame);
      frame.addEventListener("keydown", (e) => step(e, u, plot, frame));
      return { plot, u, frame, unit };
    });
    draw();
  }
  // The plot has the role slider: a screen reader passes the arrow keys to it, and says the text of its value on a change.
  function stand(u, plot, frame, i) {
    const times = u.data[0], values = plot.lines.map(([label], k) => `${label} ${shown(u.data[k + 1][i])}`).join(", ");
    for (const [name, t] of [["min", times[0]], ["max", times[times.length - 1]], ["now", times[i]]]) frame.setAttribute(`aria-value${name}`, t ?? 0);
    frame.setAttribute("aria-valuetext", times.length ? `${clock(times[i])}: ${values}` : "no point yet");
  }
  // Arrow keys move along the points, as the mouse does.
  function step(event, u, plot, frame) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    const n = u.data[0].length;
    if (by === undefined || n === 0) return;
    event.preventDefault();
    const nothing = (k) => u.data.slice(1).every((values) => values[k] === null);
    let i = Math.min(n - 1, Math.max(0, (u.cursor.idx ?? n - 1) + by));
    // The empty row between two starts of the sidecar is skipped.
    while (nothing(i) && i > 0 && i < n - 1) i += Math.sign(by);
    u.setCursor({ left: u.valToPos(u.data[0][i], "x"), top: 5 });
    stand(u, plot, frame, i);
  }
  function draw() {
    const view = inView();
    for (const { plot, u, frame, unit } of charts) {
      unit.textContent = unitOf(plot);
      u.setData(data(plot, view));
      if ((u.cursor.left ?? -1) < 0 && view.length) u.setLegend({ idx: view.length - 1 });
      // A point that was selected by the keyboard stays selected, and a screen reader does not say each new point.
      if (frame.matches(":focus-visible")) {
        const t = Number(frame.getAttribute("aria-valuenow"));
        if ((u.cursor.left ?? -1) >= 0) queueMicrotask(() => u.setCursor({ left: u.valToPos(t, "x"), top: 5 }));  // uPlot sets its scale in one too
        continue;
      }
      stand(u, plot, frame, view.length - 1);
      frame.setAttribute("aria-label", `${plot.title}, ${unitOf(plot)}: ${summary(plot, view)}. Arrow keys read single points.`);
    }
  }
  function start(elements) {
    place = elements.place;
    plots = elements.plots ?? PLOTS;  // a page with other columns has plots of its own
    // A page that is not live begins with the whole run.
    if (elements.lasts !== undefined) [, span] = SPANS.find(([, seconds]) => elements.lasts <= seconds) ?? SPANS.at(-1);
    elements.spans.replaceChildren(...SPANS.map(([name, seconds]) => {
      const button = document.createElement("button");
      button.type = "button"; button.textContent = name; button.setAttribute("aria-pressed", String(seconds === span));
      button.addEventListener("click", () => {
        span = seconds;
        for (const b of elements.spans.children) b.setAttribute("aria-pressed", String(b === button));
        draw();
      });
      return button;
    }));
    build();
    // On paper the colours and the widths are others.
    for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", build);
    new ResizeObserver(() => charts.forEach(({ u, frame }) => {
      if (frame.clientWidth && frame.clientWidth !== u.width) u.setSize({ width: frame.clientWidth, height: 190 });
    })).observe(place);
  }
  return {
    start,
    whole(sent) { columns = sent.columns; rows = sent.rows; restarts = sent.restarts; definition = sent.definition; draw(); },
    // The sent rows replace all rows from the first sent instant on, because the newest row may have changed.
    add(sent, newRestarts, newFaults, newDefinition) {
      restarts = newRestarts;
      definition = newDefinition;
      faults = newFaults.filter((f) => f.start !== null).map((f) => ({ name: f.name || f.kind, from: Date.parse(f.start) / 1000, to: f.healed === null ? null : Date.parse(f.healed) / 1000 }));
      if (sent.length && columns.length) rows = rows.filter((row) => row[0] < sent[0][0]).concat(sent);
      draw();
    },
  };
})();
