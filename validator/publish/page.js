"use strict";
// Data from the pipeline, such as keys and topics, is untrusted: it is set as text, never as markup.
const at = (id) => document.getElementById(id);
const grouped = new Intl.NumberFormat("en");
const shown = (v) => v === null || v === undefined ? "–" : typeof v === "number"
  ? (Number.isInteger(v) ? grouped.format(v) : String(Number(v.toPrecision(4)))) : String(v);
// Truncated, not rounded: a ratio below 1 must not be shown as 1.
const ratio = (v) => v === null ? null : String(Math.floor(v * 1e6) / 1e6);
const clock = (t) => t ? t.slice(0, 19).replace("T", " ") : "–";
// Shows the date only if it differs from that of the report.
const near = (t) => t && time && t.slice(0, 10) === time.slice(0, 10) ? t.slice(11, 19) : clock(t);
const words = (name) => name.replaceAll("_", " ");
const BAD = new Set(["missing", "duplicate", "incorrect", "misplaced", "unknown_id", "inconsistent", "undecodable", "wrong_value"]);
const MARK = { pass: "✔", fail: "✖", unknown: "?" };
const SILENT_SECONDS = 12;  // two intervals of `beat` (feed.HEARTBEAT_SECONDS)
const STALE_SECONDS = 30;   // as /readyz
const RETRY_MS = 1000;
const COPIED_MS = 5000;     // how long a button shows the result of copying
const ANSWER_MS = 15000;    // timeout of a request
const LISTED = 8, LISTED_MOST = 100;  // violations at first, and on request

function make(tag, text, kind) { const e = document.createElement(tag); if (text !== undefined) e.textContent = shown(text); if (kind) e.className = kind; return e; }
const cell = (value, kind) => make("td", value, kind);
function row(id, ...cells) {
  const tr = document.createElement("tr"), heads = at(id).closest("table").querySelectorAll("thead th");
  cells.forEach((td, i) => { if (heads[i]) td.dataset.head = heads[i].textContent; });
  tr.append(...cells);
  return tr;
}
const keyed = (node, key) => { node.dataset.key = key; return node; };
// As replaceChildren, but unchanged nodes stay: an update keeps the user's selection and a screen reader's position.
function settle(place, nodes) {
  const key = (node) => node.dataset && node.dataset.key, wanted = new Set(nodes.map(key));
  const held = new Map([...place.children].map((e) => [key(e), e]));
  for (const old of [...place.childNodes]) if (!wanted.has(key(old))) old.remove();
  nodes.forEach((node, i) => {
    const old = place.childNodes[i] || null;
    if (old && key(old) === key(node)) become(old, node);
    else {
      const moved = key(node) && held.get(key(node));
      place.insertBefore(moved || node, old);
      if (moved) become(moved, node);
    }
  });
  while (place.childNodes.length > nodes.length) place.lastChild.remove();
}
function become(old, node) {
  if (old.isEqualNode(node)) return;
  if (old.nodeName !== node.nodeName) return old.replaceWith(node);
  if (old.nodeType === Node.TEXT_NODE) { old.data = node.data; return; }
  for (const name of old.getAttributeNames()) if (!node.hasAttribute(name)) old.removeAttribute(name);
  for (const name of node.getAttributeNames()) if (old.getAttribute(name) !== node.getAttribute(name)) old.setAttribute(name, node.getAttribute(name));
  settle(old, [...node.childNodes]);
}
const fill = (id, nodes) => settle(at(id), nodes);
const setText = (id, text) => fill(id, text === "" ? [] : [document.createTextNode(text)]);
// The age changes with each update. It is a separate node, so that the instant beside it stays selected.
const since = (instant, now) => [`first confirmed ${near(instant)} UTC, `, make("span", `${ago((now - Date.parse(instant)) / 1000)} ago`)];
function runbook(path) { const link = make("a", path.split("/").pop()); link.href = path; return link; }
// The button that was pressed last, and its label. An update creates the buttons again, and must keep that label.
let copied = { place: null, label: null }, forgetting;
const copyLabel = (place) => place === copied.place ? copied.label : "copy";
function answerCopy(place, label) {
  copied = { place, label };
  for (const button of document.querySelectorAll("button.copy")) button.textContent = copyLabel(button.dataset.place);
}
function command(card, line) {
  const place = `${card}: ${line}`, button = make("button", copyLabel(place), "copy");
  button.type = "button"; button.dataset.place = place; button.setAttribute("aria-label", `copy ${line}`);
  return [make("code", line), " ", button];
}
// `navigator.clipboard` requires https. `execCommand` also works with http, and leaves the text selected.
function copy(button) {
  getSelection().selectAllChildren(button.parentNode.querySelector("code"));
  const done = document.execCommand("copy");
  answerCopy(button.dataset.place, done ? "copied" : "press Ctrl+C");
  clearTimeout(forgetting);
  forgetting = setTimeout(answerCopy, COPIED_MS, null, null);
  // A new node, so that a screen reader says the same words again.
  at("copied").replaceChildren(done ? "Copied." : "Selected; press Ctrl+C.");
}
function ago(seconds) {
  const s = Math.max(0, Math.round(seconds));
  return s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

let lastSaid = "", heardAt = null, batchAge = null, batchAgeAt = 0, restoring = false, doubt = null, time = null, all = false, lastList = null;

function verdicts(update) {
  const report = update.report, first = update.findings.filter((f) => !f.tolerated && f.since).map((f) => f.since).sort()[0];
  const names = Object.keys(report.verdicts).sort((a, b) => (b === report.guarantee) - (a === report.guarantee));
  fill("verdicts", names.map((name) => {
    const verdict = report.verdicts[name], declared = name === report.guarantee;
    const card = make("div", undefined, `verdict ${verdict}${declared ? " declared" : ""}`), big = make("b"), mark = make("span", MARK[verdict] + " ");
    mark.setAttribute("aria-hidden", "true");
    big.append(mark, verdict);
    const over = Object.entries(report.verdicts_over).map(([span, of]) => `last ${span}: ${shown(of[name])}`).join(", ");
    card.append(words(name) + (declared ? " (declared)" : ""), big, make("span", over, "over"));
    if (declared && verdict === "fail" && first) {
      const age = make("span", undefined, "over");
      age.append(...since(first, Date.parse(report.time)));
      card.append(age);
    }
    return keyed(card, name);
  }));
  const said = `${words(report.guarantee)}: ${report.outcome}`;
  if (said !== lastSaid) { lastSaid = said; setText("said", `The verdict is now: ${said}.`); }
}
function findings(update) {
  const report = update.report, now = Date.parse(report.time);
  at("broken").hidden = update.findings.length === 0;
  fill("findings", update.findings.map((f) => {
    const card = make("div", undefined, "finding" + (f.tolerated || (f.acknowledged && !f.acknowledge) ? " tolerated" : "")), list = make("dl");
    const line = (head, ...what) => { const dd = make("dd"); dd.append(...what); list.append(make("dt", head), dd); };
    card.append(make("strong", f.count), ` ${f.sentence}.`);
    if (f.since) line("since", ...since(f.since, now));
    if (f.where) line("where", f.where);
    if (f.attributed) line("fault", f.attributed);
    if (f.acknowledged) line("accepted", f.acknowledged);
    if (f.tolerated) line("note", "The declared guarantee tolerates this class.");
    line("do", f.advice);
    if (f.command) line("history", ...command(f.violation, f.command));
    if (f.acknowledge) line("acknowledge", ...command(f.violation, f.acknowledge), f.acknowledge_all ? " (this one)" : "");
    if (f.acknowledge_all) line("acknowledge all", ...command(f.violation, f.acknowledge_all), ` (${f.acknowledge_reach})`);
    line("runbook", runbook(update.runbook));
    card.append(list);
    return keyed(card, f.violation);
  }));
  at("engine").hidden = update.effective.length === 0;
  setText("effective", update.effective.join(" "));
  at("effective").className = report.effective_guarantee && report.effective_guarantee.finding ? "finding" : "quiet";
  // The cards above show the violations. The list of reasons is shown only if one of them is a doubt, which has no card.
  const doubts = report.outcome === "unknown" || report.reasons.length > update.findings.length;
  at("doubts").hidden = !doubts || report.reasons.length === 0;
  fill("reasons", report.reasons.map((reason) => make("li", reason)));
  at("limits").hidden = report.cannot_see.length === 0;
  fill("cannot-see", report.cannot_see.map((sentence) => make("li", sentence)));
}
function topics(report) {
  const now = Date.parse(report.time), tenth = (v) => Math.round(v * 10) / 10;
  const behind = (t) => t.read_through === null ? null : tenth(Math.max(0, (now - Date.parse(t.read_through)) / 1000));
  const found = report.coverage.topics.map((t) => keyed(row("topics", cell(t.topic), cell(t.role), cell(t.partitions, "n"),
    cell(t.records, "n"), cell(t.lag_events, "n"), cell(behind(t), "n"), cell(near(t.newest_event_time))), t.topic));
  const absent = report.waiting_for.map((name) => keyed(row("topics", cell(name), cell("does not exist", "bad"), cell(null, "n"), cell(null, "n"), cell(null, "n"), cell(null, "n"), cell(null)), `absent:${name}`));
  fill("topics", [...found, ...absent]);
}
// There may be thousands of partitions: the page requests the rows only while they are unfolded, and redraws changed ones.
const drawn = new Map();
function frontier(listed) {
  setText("partitions-of", `As of batch ${shown(listed.batches)}, ${near(listed.time)} UTC.`);
  fill("partitions", listed.rows.map((sent) => {
    const values = [...sent.slice(0, -1), near(sent[sent.length - 1])];
    const key = `${sent[1]} ${sent[0]}`, said = JSON.stringify(values), known = drawn.get(key);
    if (known && known.said === said) return known.tr;
    const kind = (v, i) => i === 0 || i === 7 ? "" : i === 6 && v ? "n bad" : "n";
    const tr = keyed(row("partitions", ...values.map((v, i) => cell(v, kind(v, i)))), key);
    drawn.set(key, { said, tr });
    return tr;
  }));
}
// One request at a time. If an update arrives during a request, one more request follows.
let asking = false, owed = false;
async function askFrontier() {
  owed = true;
  if (asking) return;
  asking = true;
  try {
    while (owed && at("frontier").open) {
      owed = false;
      // Without an answer, the rows and the number of their batch stay. The next update or beat requests them again.
      const listed = await fetch("partitions.json", { signal: AbortSignal.timeout(ANSWER_MS) }).then((answer) => answer.json()).catch(() => null);
      if (!at("frontier").open) continue;
      if (listed && listed.rows) frontier(listed);
      else if (drawn.size === 0) setText("partitions-of", listed ? "No batch yet." : "The sidecar does not answer.");
    }
  } finally { asking = false; }
}
function opened() {
  drawn.clear(); fill("partitions", []);
  setText("partitions-of", at("frontier").open ? "Asking the sidecar." : "");
  askFrontier();
}
const within = (report) => report.latency_resolution_seconds ? ` (± ${report.latency_resolution_seconds.toFixed(1)})` : "";
function tiles(report, canary) {
  const c = report.contributions, lag = report.coverage.topics.reduce((sum, t) => sum + t.lag_events, 0), delay = report.latency_seconds;
  const named = Object.keys(delay).find((name) => delay[name].p99 !== null);
  const lines = [["events expected", c.expected], ["processed", c.processed], ["late, handled", c.late],
    ["missing", c.missing, "bad"], ["duplicate", c.duplicate, "bad"], ["incorrect", c.incorrect, "bad"], ["overdue", c.overdue, "warn"],
    ["pending", c.pending], ["exact ratio", ratio(report.reliability.exact_ratio)],
    [named ? `latency p99 from ${words(named)}, whole run, s${within(report)}` : "latency", named ? delay[named].p99 : null], ["sidecar lag, offsets", lag]];
  if (canary) lines.push(["canary: share of planted found", canary.found, canary.doubt ? "bad" : ""]);
  fill("tiles", lines.map(([name, value, tone]) => {
    const tile = make("div", undefined, "tile" + (tone && value !== null && value !== 0 ? ` ${tone}` : ""));
    tile.append(make("dt", name), make("dd", value));
    return tile;
  }));
}
function counts(id, values) {
  fill(id, Object.entries(values).map(([name, n]) => row(id, cell(words(name)), cell(n, n > 0 && BAD.has(name) ? "n bad" : "n"))));
}
function measures(report) {
  const lines = { "handled ratio": ratio(report.reliability.handled_ratio), "exact ratio": ratio(report.reliability.exact_ratio),
    "reliable throughput (1/s)": report.reliability.reliable_throughput_per_second,
    "inputs read (1/s)": report.validator.input_events_per_second, "input watermark": clock(report.input_watermark) };
  for (const [name, l] of Object.entries(report.latency_seconds)) { lines[`latency ${words(name)} p50 (s)${within(report)}`] = l.p50; lines[`latency ${words(name)} p99 (s)${within(report)}`] = l.p99; }
  Object.assign(lines, { "detection delay p99 (s)": report.validator.detection_delay_seconds.p99, "coverage complete": report.coverage.complete ? "yes" : "no",
    "coverage differences": report.coverage.differences?.length ?? null, "offsets read again": report.coverage.second_reading?.offsets ?? null,
    "batches": report.validator.batches, "seconds of the last batch": report.validator.batch_seconds, "restarts": report.validator.restarts });
  fill("measures", Object.entries(lines).map(([name, v]) => row("measures", cell(name), cell(v, "n"))));
}
// Appends the resolution of the instants if topics have CreateTime; null: the resolution is not known.
const dated = (seconds, { resolution_seconds: within }) => seconds === null || within === 0 || within === undefined ? seconds
  : `${shown(seconds)} ± ${within === null ? "?" : within.toFixed(1)}`;
function faults(report) {
  at("faulted").hidden = report.faults.length === 0;
  const broke = (v) => v === null ? "not known by class" : Object.entries(v).filter(([, n]) => n).map(([name, n]) => `${shown(n)} ${words(name)}`).join(", ") || "none";
  fill("faults", report.faults.slice(-50).reverse().map((f) => {
    const name = cell(f.name || f.kind); name.append(make("small", f.kind));
    return keyed(row("faults", name, cell(f.target), cell(near(f.start)), cell(f.healed === null ? "not healed" : near(f.healed), f.healed === null ? "bad" : ""),
      cell(dated(f.failure_cost_seconds, f), "n"), cell(dated(f.downtime_seconds, f), "n"),
      cell(f.recovered === false ? "not reached" : dated(f.recovery_seconds, f), "n"),
      cell(f.throughput_penalty_ratio, "n"), cell(f.latency_penalty_ratio, "n"), cell(broke(f.violations))), f.id);
  }));
  const now = report.faults.filter((f) => f.start !== null && f.healed === null).map((f) => `${f.name || f.kind} on ${f.target} since ${near(f.start)} UTC`);
  setText("shaded", report.faults.length === 0 ? "No fault was injected." : "Shaded: a fault is active. Dashed: the sidecar restarted. "
    + (now.length ? `In force now: ${now.join(", ")}.` : "No fault is active now."));
}
function violations(list, open) {
  const c = list.counts, most = list.violations.slice(0, LISTED_MOST), shownNow = most.slice(0, all ? LISTED_MOST : LISTED), more = at("more");
  lastList = [list, open];
  more.hidden = most.length <= LISTED;
  setText("more", all ? `Show only the newest ${LISTED}` : `Show all ${most.length} that are kept`);
  more.setAttribute("aria-expanded", String(all));
  setText("violated", list.violations.length === 0 ? "None is known."
    : `Contributions and results concerned: ${shown(c.confirmed)} confirmed, ${shown(c.suspected)} suspected, ${shown(c.retracted)} retracted; ${shown(open)} confirmed and not acknowledged. Newest first.`);
  at("violations-frame").hidden = list.violations.length === 0;
  fill("violations", shownNow.map((v) => {
    const kind = cell(), what = cell(v.explanation), tag = make("span", words(v.class), "tag" + (v.state === "confirmed" && v.acknowledged === null ? "" : " mild"));
    const by = v.acknowledged_by ? ` by ${v.acknowledged_by}` : "", when = v.acknowledged_at ? ` on ${near(v.acknowledged_at)}` : "";
    kind.append(tag, make("small", v.acknowledged === null ? v.state : `${v.state}, acknowledged${by}${when}: ${v.acknowledged}`));
    if (v.fault) what.append(make("small", `after fault ${v.fault}`));
    if (v.ids.length) what.append(make("small", `ids ${v.ids.slice(0, 6).join(", ")}${v.count > Math.min(6, v.ids.length) ? ", …" : ""} · ${v.id}`));
    return keyed(row("violations", cell(near(v.changed)), kind, cell(near(v.window_start)), cell(v.key), cell(v.count, "n"), what), v.id);
  }));
}
function show(update) {
  const report = update.report;
  if (report === null) return;
  document.title = `${MARK[report.outcome]} ${report.outcome} – ${report.pipeline}`;
  setText("pipeline", report.pipeline);
  setText("headline", update.headline);
  setText("version", `streamproof ${report.validator.version}.`);
  restoring = update.restoring; time = report.time; doubt = update.canary && update.canary.doubt ? update.canary : null;
  verdicts(update); findings(update); tiles(report, update.canary); topics(report); measures(report); faults(report);
  if (at("frontier").open) askFrontier();
  setText("outstanding", update.outstanding.join(" "));
  if (update.violations) violations(update.violations, report.violations_unacknowledged);
  counts("contributions", report.contributions); counts("results", report.results); counts("cells", report.cells);
  Timeline.add(update.rows, update.restarts, report.faults, update.definition);
}
// The age of the last batch is by the sidecar's clock, because the clock of the browser's machine may be wrong.
function beat(said) {
  heardAt = performance.now(); batchAge = said.age_seconds; batchAgeAt = heardAt; fresh();
  if (drawn.size === 0) askFrontier();
}
function fresh() {
  const now = performance.now(), silent = heardAt === null ? null : (now - heardAt) / 1000, age = batchAge === null ? null : batchAge + (now - batchAgeAt) / 1000;
  const dead = lost || silent === null || silent > SILENT_SECONDS;
  at("lamp").className = dead ? "off" : age === null || age > STALE_SECONDS || doubt ? "" : "on";
  setText("when", (dead ? "not connected" : age === null ? "no batch yet" : `live, last batch ${ago(age)} ago`) + (time ? ` · as of ${clock(time)} UTC` : ""));
  let notice = "", book = null;
  if (dead && ended) notice = `The sidecar was stopped ${ago(silent)} ago. This page shows the last report. Trying again.`;
  else if (dead && silent !== null) notice = `The sidecar has not answered for ${ago(silent)}. This page shows the last report; check that its process runs. Trying again.`;
  else if (dead && lost) notice = "The sidecar does not answer. Trying again.";
  else if (restoring) notice = "The sidecar has restarted and reads its state. This page shows the report from before.";
  else if (age !== null && age > STALE_SECONDS) notice = `No batch was committed for ${ago(age)}: verdicts stand still. Read the sidecar's log.`;
  else if (doubt) { notice = doubt.doubt; book = doubt.runbook; }
  // The number of seconds grows: without it, the sentence stays the same, and a screen reader says it once.
  const alarm = notice.replace(/ for [\d.]+ \w+| [\d.]+ \w+ ago/, "");
  setText("noticed", notice);
  fill("noticed-book", book === null ? [] : [document.createTextNode(" Runbook: "), runbook(book)]);
  setText("alarm", alarm);
  at("notice").hidden = notice === "";
}
let lost = false, ended = false;
function listen() {
  const events = new EventSource("events");
  const heard = (handle) => (e) => { lost = false; ended = false; handle(JSON.parse(e.data)); };
  events.addEventListener("history", heard((sent) => { heardAt = performance.now(); Timeline.whole(sent); }));
  events.addEventListener("update", heard((update) => { show(update); beat(update); }));
  events.addEventListener("beat", heard(beat));
  events.addEventListener("end", () => { heardAt = performance.now(); ended = true; });
  events.onerror = () => {
    lost = true; fresh();
    // The browser reconnects by itself, except after an HTTP error. Then the page connects again.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MS);
  };
}
document.addEventListener("click", (e) => { if (e.target.matches("button.copy")) copy(e.target); });
at("more").addEventListener("click", () => { all = !all; violations(...lastList); });
at("frontier").addEventListener("toggle", opened);
Timeline.start({ place: at("plots"), spans: at("spans") });
listen();
setInterval(fresh, 1000);
