// A list of which only the lines in sight are elements: 25,000 lines cost as much as 25.

class VirtualList {
  constructor(label, height, render, onChoose) {
    Object.assign(this, { height, render, onChoose, count: 0, chosen: -1, first: -1 });
    this.id = `list-${(VirtualList.made = (VirtualList.made ?? 0) + 1)}`;
    this.lines = html("div", { class: "lines", role: "presentation" });
    this.element = html("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": label }, this.lines);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("click", (event) => {
      const line = event.target.closest("[data-at]");
      if (line) this.onChoose(Number(line.dataset.at));
    });
    new ResizeObserver(() => this.draw(true)).observe(this.element);
  }

  fill(count) {
    this.count = count;
    this.lines.style.height = `${count * this.height}px`;
    this.draw(true);
  }

  draw(anew = false) {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 6);
    if (!anew && first === this.first) return;
    this.first = first;
    const last = Math.min(this.count, first + Math.ceil((this.element.clientHeight || 300) / this.height) + 12);
    const lines = [];
    for (let at = first; at < last; at++) lines.push(this.line(at));
    this.lines.replaceChildren(...lines);
    const seen = this.chosen >= first && this.chosen < last;
    if (seen) this.element.setAttribute("aria-activedescendant", `${this.id}-${this.chosen}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  line(at) {
    const line = this.render(at);
    const chosen = at === this.chosen;
    fill(line, { role: "option", id: `${this.id}-${at}`, "data-at": at, "aria-selected": String(chosen) }, []);
    fill(line, { "aria-posinset": at + 1, "aria-setsize": this.count }, []);
    line.classList.add("line");
    line.style.top = `${at * this.height}px`;
    line.style.height = `${this.height}px`;
    return line;
  }

  choose(at) {
    this.chosen = at;
    if (at >= 0) {
      const top = at * this.height;
      const { scrollTop, clientHeight } = this.element;
      if (top < scrollTop || top + this.height > scrollTop + clientHeight) {
        this.element.scrollTop = Math.round((top - clientHeight / 2) / this.height) * this.height; // no line is cut at the top
      }
    }
    this.draw(true);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count };
    if (!(event.key in steps) || !this.count) return;
    event.preventDefault();
    this.onChoose(Math.min(this.count - 1, Math.max(0, this.chosen + steps[event.key])));
  }
}
