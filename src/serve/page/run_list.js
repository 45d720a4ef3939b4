// The list of runs: a row per run with a box to choose it, its colour in the charts, how far it is and its losses.
const { html, button } = ddlFigure;
const { shortNumber } = ddlCharts;

const kColours = 8; // as charts.js has
const kLiveSeconds = 30; // a run that recorded something within them is under way

const kOrders = {
  newest: (a, b) => a.updated_s_ago - b.updated_s_ago,
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  loss: (a, b) => (a.validation_loss ?? a.loss ?? Infinity) - (b.validation_loss ?? b.loss ?? Infinity),
};

export class RunList {
  // onChoose(names) is told of every change.
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.rows = new Map();
    this.order = "name";
    this.filter = html("input", { type: "search", placeholder: "filter", "aria-label": "show runs whose name, rule or status has this text", oninput: () => this.refresh() });
    this.orders = html("span", { className: "switch", role: "group", "aria-label": "order" });
    this.body = html("ul", { className: "run-list" });
    this.count = html("p", { className: "note" });
    this.element = html("aside", { className: "runs-aside", "aria-label": "runs" },
      [html("div", { className: "toolbar" }, [this.filter, this.orders]), html("div", { className: "count" }, [this.count, button("show none", () => this.onChoose([]))]), this.body]);
  }

  show(runs, chosen) {
    [this.runs, this.chosen] = [runs || [], chosen];
    this.refresh();
  }

  refresh() {
    this.orders.replaceChildren(...Object.keys(kOrders).map((name) => button(name, () => {
      this.order = name;
      this.refresh();
    }, name === this.order)));
    const wanted = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => wanted.every((word) => `${run.name} ${run.residual} ${run.status}`.toLowerCase().includes(word));
    const listed = this.runs.filter(fits).sort(kOrders[this.order]);
    for (const name of this.rows.keys()) if (!this.runs.some((run) => run.name === name)) this.rows.delete(name);
    const rows = listed.map((run) => this.row(run));
    // Rows stay where they are while nothing moves: a box keeps the focus.
    if (rows.length !== this.body.children.length || rows.some((row, i) => this.body.children[i] !== row)) this.body.replaceChildren(...rows);
    this.count.textContent = `${listed.length === this.runs.length ? "" : `${listed.length} of `}${this.runs.length} runs, ${this.chosen.length} shown`;
  }

  row(run) {
    if (!this.rows.has(run.name)) {
      const box = html("input", { type: "checkbox", onchange: () => this.toggle(run.name, box.checked) });
      const parts = { box, key: html("span", { className: "key" }), status: html("span", { className: "status" }), bar: html("progress", { "aria-hidden": "true" }), numbers: html("span", { className: "numbers" }) };
      const row = html("li", {}, [html("label", {}, [box, parts.key, html("span", { className: "name", textContent: run.name }), parts.status, parts.numbers, parts.bar])]);
      this.rows.set(run.name, Object.assign(row, { parts }));
    }
    const row = this.rows.get(run.name);
    const { box, key, status, bar, numbers } = row.parts;
    const place = this.chosen.indexOf(run.name);
    box.checked = place >= 0;
    key.className = place >= 0 ? `key s${place % kColours}` : "key off";
    const live = !run.done && run.updated_s_ago < kLiveSeconds;
    row.className = live ? "live" : "";
    status.textContent = `${run.residual || "?"} · ${live ? `step ${run.step}${run.steps ? ` of ${run.steps}` : ""}` : run.status}`;
    Object.assign(bar, { max: run.steps || 1, value: run.steps ? run.step : 0, hidden: run.done || !run.steps });
    numbers.textContent = run.validation_loss !== null ? `val ${shortNumber(run.validation_loss, 3)}` : run.loss !== null ? `loss ${shortNumber(run.loss, 3)}` : "";
    return row;
  }

  // New ones come last, so that the others keep their colours.
  toggle(name, on) {
    this.onChoose(on ? [...this.chosen, name] : this.chosen.filter((each) => each !== name));
  }
}
