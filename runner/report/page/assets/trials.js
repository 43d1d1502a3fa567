// The path of the search: each check with what it kept, what came of it and what it printed.

const OUTCOMES = ["pass", "fail", "different", "unresolved"];

class Trials {
  constructor(page, onChoose) {
    this.trials = page.trials;
    this.elements = page.elements;
    this.onChoose = onChoose;
    const ends = this.trials.flatMap(({ kept }) => kept.map(([, last]) => last + 1));
    const nodes = page.elements === "nodes" && page.whole ? topNodes(page.whole) : 0;
    // the iterations of a repeat are all the same
    this.count = page.strategy.includes("repeat") ? 0 : nodes || ends.reduce((most, end) => Math.max(most, end), 0);
    this.list = new VirtualList("Checks", 30, (at) => this.line(this.trials[at]), (at) => this.choose(at));
    this.details = html("div", { class: "trial", role: "region", "aria-label": "Chosen check", tabindex: 0 });
    this.details.append(html("p", { class: "hint" }, "Choose a check to see why it came out so, and what it printed."));
    this.element = html("div", { class: "path" }, html("div", {}, this.legend(), this.heads(), this.list.element), this.details);
    this.list.element.style.height = `${Math.min(360, this.trials.length * 30 + 2)}px`;
    this.list.fill(this.trials.length);
  }

  legend() {
    const counts = new Map();
    for (const { outcome } of this.trials) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
    const items = [...counts].map(([outcome, count]) => html("li", {}, letter(outcome), shape(outcome), `${count} ${outcome}`));
    return html("ul", { class: "legend" }, items);
  }

  heads() {
    const kept = this.count ? `kept of ${this.count.toLocaleString("en")} ${this.elements}` : "";
    const names = ["check", "", kept, "size", "seconds", ""];
    const cells = names.map((name) => html("span", {}, name));
    return html("div", { class: `heads ${this.count ? "" : "bare"}`, "aria-hidden": "true" }, cells);
  }

  line(trial) {
    return html(
      "div",
      { class: this.count ? "" : "bare" },
      html("span", { class: "number" }, trial.number || "known"),
      letter(trial.outcome),
      this.count ? this.strip(trial) : html("span", {}),
      html("span", { class: "number" }, trial.size.toLocaleString("en")),
      html("span", { class: "number" }, trial.number ? trial.seconds.toFixed(2) : ""),
      html("span", { class: "name" }, [trial.phase, trial.label].filter(Boolean).join(": ")),
    );
  }

  strip({ kept, outcome }) {
    const wide = 1000;
    const at = (element) => (element / this.count) * wide;
    // at least as wide as can be seen, and what touches is one
    const parts = kept.map(([first, last]) => {
      const start = Math.min(at(first), wide - 4);
      return `M${start.toFixed(1)} 0H${Math.max(at(last + 1), start + 4).toFixed(1)}V10H${start.toFixed(1)}z`;
    });
    const shape = svg("path", { class: `kept ${kind(outcome)}`, d: parts.join("") || "M0 0" });
    const all = svg("rect", { class: "all", width: wide, height: 10 });
    return svg("svg", { class: "strip", viewBox: `0 0 ${wide} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, all, shape);
  }

  choose(at) {
    const trial = this.trials[at];
    this.list.choose(at);
    const kept = trial.kept.slice(0, 20).map(([first, last]) => (first === last ? `${first}` : `${first} to ${last}`));
    const more = trial.kept.length > 20 ? ` and ${trial.kept.length - 20} more stretches` : "";
    const log = html("pre", { tabindex: 0, "aria-label": "What the check printed" });
    log.textContent = plain(trial.log, true);
    this.details.replaceChildren(
      html("h3", {}, letter(trial.outcome), ` ${trial.outcome.toUpperCase()}${trial.number ? `, check ${trial.number}` : ", known before"}`),
      table([], [
        ["phase", trial.phase],
        ["asked", trial.label],
        ["why", trial.reason],
        ["size", this.count ? `${trial.size.toLocaleString("en")} ${this.elements}` : ""],
        ["kept", this.count && kept.length ? kept.join(", ") + more : ""],
        ["seconds", trial.number ? trial.seconds.toFixed(2) : ""],
      ].filter(([, value]) => value)),
      ...(trial.log ? [html("h4", {}, "What it printed"), log] : []),
    );
    this.onChoose(trial);
  }
}

function kind(outcome) {
  return OUTCOMES.includes(outcome) ? outcome : "other";
}

// Returns the mark that an outcome has in the chart.
function shape(outcome) {
  const mark = svg("path", { class: `mark ${kind(outcome)}`, d: MARKS[outcome] ?? MARKS.dot });
  return svg("svg", { class: "shape", viewBox: "-6 -6 12 12", width: 14, height: 14, "aria-hidden": "true" }, mark);
}

function letter(outcome) {
  return html("span", { class: `letter ${kind(outcome)}`, role: "img", "aria-label": outcome }, outcome.slice(0, 1).toUpperCase());
}
