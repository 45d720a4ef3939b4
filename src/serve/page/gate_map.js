// The heat map of tokens x sublayers, and what one write did where it is clicked.
import { scalarSeries, seriesRange, seriesRows, writeAt } from "./trace.js";
import { visible } from "./token_strip.js";
import { writeElement } from "./write_picture.js";

const { figure, html, button } = ddlFigure;
const { svg } = ddlCharts;

const kCell = 15; // pixels, at least; a long text scrolls
const kNames = 90; // pixels for the sublayers' names
const kClamps = [["free", null], ["0", 0], ["1", 1], ["2", 2]];

export class GateMap {
  // settings: {theme, onToken(index): a token was chosen here, onClamp({sublayer, series, value} or null)}
  constructor(settings) {
    this.settings = settings;
    this.chosen = null; // {sublayer, token}
    this.controls = html("div", { className: "toolbar" });
    this.holder = html("div", { className: "map" });
    this.detail = html("div", { className: "write-detail", "aria-live": "polite" });
    this.element = html("div", { className: "gate-map", hidden: true }, [this.controls, this.holder, this.detail]);
  }
  redraw() {
    this.figure?.redraw();
  }

  show(trace, clamp) {
    this.trace = trace;
    this.clamp = clamp;
    const names = trace ? scalarSeries(trace) : [];
    this.element.hidden = !trace;
    if (!trace) return;
    if (!names.includes(this.series)) this.series = names[0];
    this.showControls(names);
    if (!names.length) {
      this.holder.replaceChildren(html("p", { className: "note", textContent: "This rule adds every sublayer's output to the stream: there is no gate to show." }));
      this.detail.replaceChildren();
      return;
    }
    const range = seriesRange(trace, this.series);
    const block = { kind: "heat", title: `The ${this.series} at every token and sublayer`, unit: this.series, rows: trace.sublayers.map((s) => s.name),
      columns: trace.tokens.map((token) => visible(token.text)), values: seriesRows(trace, this.series),
      ...(range ? { range } : {}), ...(this.series === "gate" ? { centre: 1, note: "0 leaves the readout as it is, 1 makes it the target, 2 mirrors it there." } : {}) };
    // As wide as there is room, and wider where cells would become too small.
    const width = () => Math.max(this.holder.clientWidth, kNames + kCell * block.columns.length);
    this.figure = figure(block, { theme: this.settings.theme, width, onDraw: (drawn) => this.mark(drawn) });
    const plot = this.figure.querySelector(".plot");
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${block.title}: the arrow keys choose a write`);
    plot.addEventListener("click", (event) => {
      const cell = event.target.dataset?.cell;
      if (cell) this.choose(...cell.split(" ").map(Number));
    });
    plot.addEventListener("keydown", (event) => {
      const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
      if (down === undefined) return;
      event.preventDefault();
      const { sublayer, token } = this.chosen || { sublayer: -down, token: -right };
      this.choose(sublayer + down, token + right);
    });
    this.holder.replaceChildren(this.figure);
    this.redraw();
    if (this.chosen) this.choose(this.chosen.sublayer, this.chosen.token);
    else this.detail.replaceChildren(html("p", { className: "note", textContent: "Click a cell to see what its write did." }));
  }

  showControls(names) {
    const parts = [];
    if (names.length > 1)
      parts.push(html("span", { className: "switch", role: "group", "aria-label": "series" }, names.map((name) => button(name, () => {
        this.series = name;
        this.show(this.trace, this.clamp);
      }, name === this.series))));
    if (names.length) {
      const sublayer = html("select", { "aria-label": "sublayer to clamp" }, this.trace.sublayers.map((s, i) =>
        html("option", { value: i, textContent: s.name, selected: i === (this.clamp?.sublayer ?? this.chosen?.sublayer ?? 0) })));
      const set = (value) => this.settings.onClamp(value === null ? null : { sublayer: Number(sublayer.value), series: this.series, value });
      sublayer.onchange = () => this.clamp && set(this.clamp.value);
      parts.push(html("span", { className: "labelled" }, [html("span", { textContent: `clamp the ${this.series} of` }), sublayer,
        html("span", { className: "switch", role: "group", "aria-label": "clamped to" }, kClamps.map(([label, value]) =>
          button(label, () => set(value), value === (this.clamp?.value ?? null))))]));
    }
    this.controls.replaceChildren(...parts);
  }

  choose(sublayer, token) {
    const limit = (v, count) => Math.max(0, Math.min(count - 1, v));
    this.chosen = { sublayer: limit(sublayer, this.trace.sublayers.length), token: limit(token, this.trace.tokens.length) };
    const write = writeAt(this.trace, this.chosen.sublayer, this.chosen.token);
    this.detail.replaceChildren(html("h3", { textContent: `The write of ${write.name} at “${visible(write.token.text)}”` }),
      writeElement(write, Math.max(240, Math.min(420, this.holder.clientWidth || 360))));
    this.mark(null);
    if (!this.clamp) this.controls.querySelector("select").value = this.chosen.sublayer;
    this.settings.onToken(this.chosen.token);
  }
  chooseToken(token) {
    if (this.trace && this.figure) this.choose(this.chosen?.sublayer ?? 0, token);
  }
  mark(drawn) {
    this.root = drawn?.root || this.root;
    this.root?.querySelector(".chosen")?.remove();
    const cell = this.chosen && this.root?.querySelector(`[data-cell="${this.chosen.sublayer} ${this.chosen.token}"]`);
    if (!cell) return;
    const box = Object.fromEntries(["x", "y", "width", "height"].map((name) => [name, cell.getAttribute(name)]));
    this.root.append(svg("rect", { ...box, class: "chosen", "pointer-events": "none" }));
  }
}
