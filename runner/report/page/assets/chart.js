// Points over a line: errors over layers, errors over raised nodes, seconds over iterations. Arrow keys walk along it.

const MARKS = {
  dot: "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z",
  pass: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
  fail: "M-3.5 -3.5h7v7h-7z",
  different: "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
  unresolved: "M0 -4L4 3.5L-4 3.5z",
  chosen: "M0 -7L2 -2L7 -2L3 1.5L4.5 6.5L0 3.5L-4.5 6.5L-3 1.5L-7 -2L-2 -2z",
};
const MOST_MARKS = 1500;

// Returns the next of 1, 2, 5, 10, ... at its power of ten.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((digit) => digit * power >= least * (1 - 1e-9)) ?? 10);
}

class Chart {
  // Points: {x, y, text, mark, kind}; y may be "nan" or "inf", which is drawn at the upper edge, or null.
  constructor(points, { title, xLabel, yLabel, log, line, limit, onChoose }) {
    Object.assign(this, { points, log, line, limit, xLabel, yLabel, onChoose, at: 0 });
    this.svg = svg("svg", { "aria-hidden": "true" });
    this.told = html("p", { class: "told" }, " ");
    this.slider = html("div", { class: "chart", role: "slider", tabindex: 0, "aria-label": title }, this.svg);
    fill(this.slider, { "aria-valuemin": 0, "aria-valuemax": Math.max(0, points.length - 1) }, []);
    this.element = html("div", { class: "charted" }, this.slider, this.told);
    this.slider.addEventListener("keydown", (event) => this.key(event));
    this.slider.addEventListener("click", (event) => this.pick(event, true));
    this.slider.addEventListener("pointermove", (event) => this.pick(event, false));
    this.move(0, false);
    new ResizeObserver(() => this.draw()).observe(this.slider);
  }

  scales() {
    const width = Math.max(240, this.slider.clientWidth || 640);
    const height = 220;
    const edge = { left: 62, right: 14, top: 30, bottom: 38 };
    const finite = this.points.map(({ y }) => y).filter((y) => typeof y === "number" && (!this.log || y > 0));
    if (this.limit) finite.push(this.limit);
    const [least, most] = finite.reduce(([a, b], y) => [Math.min(a, y), Math.max(b, y)], [Infinity, -Infinity]);
    const into = this.log ? Math.log10 : (value) => value;
    let [low, high] = finite.length ? [this.log ? Math.floor(into(least)) : 0, this.log ? Math.ceil(into(most)) : most] : [0, 1];
    if (low === high) high = low + 1;
    const step = this.log ? Math.max(1, Math.ceil((high - low) / 5)) : roundStep(high / 4);
    if (!this.log) high = Math.ceil(high / step - 1e-9) * step;
    if (this.log && high - low > 16) low = high - 16;
    const [first, last] = [this.points[0]?.x ?? 0, this.points[this.points.length - 1]?.x ?? 1];
    const across = (x) => edge.left + ((x - first) / (last - first || 1)) * (width - edge.left - edge.right);
    const upward = (y) => {
      if (typeof y !== "number") return edge.top;
      const share = ((this.log && y <= 0 ? low : Math.max(low, into(y))) - low) / (high - low);
      return height - edge.bottom - share * (height - edge.top - edge.bottom - 14);
    };
    return { width, height, edge, low, high, step, first, last, across, upward };
  }

  draw() {
    if (!this.points.length) return;
    const scale = (this.scale = this.scales());
    const { width, height, edge, across, upward } = scale;
    fill(this.svg, { viewBox: `0 0 ${width} ${height}`, width, height }, []);
    const known = this.points.filter(({ y }) => y !== null);
    const place = ({ x, y }) => `${across(x).toFixed(1)} ${upward(y).toFixed(1)}`;
    const parts = [...this.axes(scale)];
    if (this.limit) parts.push(svg("path", { class: "limit", d: `M${edge.left} ${upward(this.limit).toFixed(1)}H${width - edge.right}` }));
    const dense = this.line && known.length > MOST_MARKS;
    if (this.line || dense) {
      // of many points each column keeps its highest
      const columns = new Map();
      for (const point of known) {
        const column = dense ? Math.round(across(point.x)) : point;
        const best = columns.get(column);
        if (!best || upward(point.y) < upward(best.y)) columns.set(column, point);
      }
      parts.push(svg("path", { class: "trace", d: `M${[...columns.values()].map(place).join("L")}` }));
    }
    const marked = dense ? known.filter(({ mark, kind }) => mark === "chosen" || kind === "culprit").slice(0, MOST_MARKS) : known;
    for (const point of marked) {
      const shape = MARKS[point.mark] ?? MARKS.dot;
      parts.push(svg("path", { class: `mark ${point.kind ?? ""}`, d: shape, transform: `translate(${place(point)})` }));
    }
    this.cursor = svg("path", { class: "cursor", d: `M0 ${edge.top - 8}V${height - edge.bottom}` });
    this.svg.replaceChildren(...parts, this.cursor);
    this.move(this.at, false);
  }

  *axes({ width, height, edge, low, high, step, first, last, upward, across }) {
    const floor = height - edge.bottom;
    yield svg("path", { class: "axis", d: `M${edge.left} ${floor}H${width - edge.right}` });
    for (let value = low; value <= high + step * 1e-6; value += step) {
      const y = upward(this.log ? 10 ** value : value).toFixed(1);
      yield svg("path", { class: "grid", d: `M${edge.left} ${y}H${width - edge.right}` });
      yield svg("text", { x: edge.left - 8, y: Number(y) + 4, class: "end" }, this.log ? `1e${value}` : figure(value));
    }
    if (this.points.some(({ y }) => y !== null && typeof y !== "number")) {
      yield svg("text", { x: edge.left - 8, y: edge.top + 4, class: "end" }, "NaN, Inf");
    }
    yield svg("text", { x: across(first), y: floor + 16 }, figure(first));
    if (last !== first) yield svg("text", { x: across(last), y: floor + 16, class: "end" }, figure(last));
    yield svg("text", { x: (edge.left + width - edge.right) / 2, y: height - 6, class: "middle" }, this.xLabel);
    yield svg("text", { x: 4, y: 12, class: "title" }, this.yLabel);
  }

  pick(event, choose) {
    if (!this.scale) return;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    let best = 0;
    this.points.forEach((point, at) => {
      if (Math.abs(this.scale.across(point.x) - x) < Math.abs(this.scale.across(this.points[best].x) - x)) best = at;
    });
    this.move(best, choose);
  }

  move(at, choose) {
    const point = this.points[at];
    if (!point) return;
    this.at = at;
    this.told.textContent = plain(point.text);
    fill(this.slider, { "aria-valuenow": at, "aria-valuetext": plain(point.text) }, []);
    if (this.scale) this.cursor?.setAttribute("transform", `translate(${this.scale.across(point.x).toFixed(1)} 0)`);
    if (choose) this.onChoose?.(at);
  }

  key(event) {
    const last = this.points.length - 1;
    const to = { ArrowRight: this.at + 1, ArrowUp: this.at + 1, ArrowLeft: this.at - 1, ArrowDown: this.at - 1, Home: 0, End: last }[event.key];
    if (to !== undefined) this.move(Math.min(last, Math.max(0, to)), false);
    else if (event.key === "Enter") this.onChoose?.(this.at);
    else return;
    event.preventDefault();
  }
}
