// The view of runs: a list to choose from, and the curves, gates and configurations of those that are chosen, live.
import { listRuns, reportAddress } from "./api.js";
import { configurationBlock, curveBlocks, gateBlocks, gateSeries, gateSublayers, kAxes } from "./run_blocks.js";
import { RunData } from "./run_data.js";
import { RunList } from "./run_list.js";

const { figure, html, button, tableElement } = ddlFigure;

const kPollSeconds = 2;
const kIdleSeconds = 30; // nothing is asked about a run that has been silent for so long
const kFirstChosen = 4; // the runs that were written to last
const kSmoothings = [["records", 0], ["1%", 0.01], ["3%", 0.03], ["10%", 0.1]];

function choice(label, options, chosen, onChoose) {
  const select = html("select", { onchange: () => onChoose(select.value) }, options.map(([text, value]) =>
    html("option", { value, textContent: text, selected: String(value) === String(chosen) })));
  return html("label", {}, [html("span", { textContent: label }), select]);
}

export class RunsView {
  constructor(page) {
    this.page = page;
    this.data = new Map(); // of runs that are or were chosen
    this.chosen = page.address().getAll("run");
    this.axis = Object.hasOwn(kAxes, page.address().get("x")) ? page.address().get("x") : "tokens";
    this.smoothing = Number(page.address().get("smooth") ?? 0.01) || 0;
    this.gate = { run: null, series: "gate", sublayer: 0 };
    this.figures = new Map(); // by title: {block, element}
    this.list = new RunList((chosen) => this.choose(chosen));
    this.toolbar = html("div", { className: "toolbar" });
    this.curves = html("section", { className: "charts" });
    this.gates = html("section", {});
    this.gateControls = html("div", { className: "toolbar" });
    this.gateCharts = html("div", { className: "charts stacked" });
    this.gates.append(html("h2", { textContent: "Gates" }), this.gateControls, this.gateCharts);
    this.configuration = html("section", {});
    this.hint = html("p", { className: "note", textContent: "" });
    this.element = html("div", { className: "columns" }, [this.list.element,
      html("div", { className: "wide-column" }, [this.toolbar, this.hint, this.curves, this.gates, this.configuration])]);
    this.stop = new AbortController();
    this.showToolbar();
    document.addEventListener("visibilitychange", () => this.poll(), { signal: this.stop.signal });
    this.poll();
  }
  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }

  // --- what is new on the server

  async poll() {
    clearTimeout(this.timer);
    if (this.polling || this.stop.signal.aborted || document.hidden) return;
    this.polling = true;
    try {
      const runs = await listRuns(this.stop.signal);
      const begins = !this.runs;
      this.runs = runs;
      if (begins && !this.chosen.length)
        this.chosen = runs.filter((run) => run.step > 0).sort((a, b) => a.updated_s_ago - b.updated_s_ago).slice(0, kFirstChosen).map((run) => run.name).sort();
      this.chosen = this.chosen.filter((name) => runs.some((run) => run.name === name));
      this.list.show(runs, this.chosen);
      const changed = await this.refreshChosen();
      if (changed || begins) this.show();
      this.page.say(null);
    } catch (error) {
      if (error.name !== "AbortError") this.page.say(error.message);
    }
    this.polling = false;
    if (!this.stop.signal.aborted) this.timer = setTimeout(() => this.poll(), 1000 * kPollSeconds);
  }

  // Whether any of the runs that are shown has something new.
  async refreshChosen() {
    const news = await Promise.all(this.chosen.map(async (name) => {
      const { step, status, updated_s_ago: idle } = this.runs.find((run) => run.name === name);
      if (!this.data.has(name)) this.data.set(name, new RunData(name));
      const run = this.data.get(name);
      const version = `${step} ${status}`;
      if (run.ready && run.version === version && (status === "done" || idle > kIdleSeconds)) return false;
      run.version = version;
      return run.refresh(this.stop.signal);
    }));
    return news.includes(true);
  }

  async choose(chosen) {
    this.chosen = chosen;
    this.page.change((address) => {
      address.set("view", "runs");
      address.delete("run");
      for (const name of chosen) address.append("run", name);
    });
    this.list.show(this.runs, chosen);
    try {
      await this.refreshChosen();
    } catch (error) {
      if (error.name !== "AbortError") this.page.say(error.message);
    }
    this.show();
  }

  // --- what is shown

  shown() {
    return this.chosen.map((name) => this.data.get(name)).filter(Boolean);
  }
  redraw() {
    for (const { element } of this.figures.values()) element.redraw();
  }

  showToolbar() {
    const set = (key, value) => {
      this[key] = value;
      this.page.change((address) => address.set(key === "axis" ? "x" : "smooth", value));
      this.showToolbar();
      this.show();
    };
    const report = html("a", { textContent: "report of these runs", target: "_blank", rel: "noopener", href: reportAddress(this.chosen) });
    this.toolbar.replaceChildren(
      html("span", { className: "switch", role: "group", "aria-label": "horizontal axis" }, Object.values(kAxes).map((axis) =>
        button(axis.label, () => set("axis", axis.key), axis.key === this.axis))),
      html("span", { className: "labelled" }, [html("span", { textContent: "smoothing" }),
        html("span", { className: "switch", role: "group", "aria-label": "smoothing, as a share of the steps" }, kSmoothings.map(([label, value]) =>
          button(label, () => set("smoothing", value), value === this.smoothing)))]),
      ...(this.chosen.length ? [report] : []));
  }

  // Charts that are there already are kept, with what the reader did to them.
  showFigures(holder, blocks) {
    const elements = blocks.map((block) => {
      const key = block.kind + block.title;
      const old = this.figures.get(key);
      if (old) {
        for (const member of Object.keys(old.block)) delete old.block[member];
        Object.assign(old.block, block);
        old.element.update();
        return old.element;
      }
      const element = figure(block, { axis: null, theme: this.page.theme, width: () => 0, onRead: (at) => this.readAll(key, at) });
      this.figures.set(key, { block, element });
      return element;
    });
    if (elements.length !== holder.children.length || elements.some((element, i) => holder.children[i] !== element)) holder.replaceChildren(...elements);
  }
  // One place, read in all curves.
  readAll(from, at) {
    for (const [key, { element }] of this.figures)
      if (key !== from && this.curves.contains(element) === this.curves.contains(this.figures.get(from).element)) element.read(at);
  }

  show() {
    const runs = this.shown();
    this.hint.textContent = this.runs && !this.runs.length ? "There are no runs yet. They appear here as soon as one begins." :
      this.runs && !runs.length ? "Choose runs from the list." : "";
    this.showToolbar();
    this.showFigures(this.curves, curveBlocks(runs, this.axis, this.smoothing));
    this.showGates(runs.filter((run) => run.ready && run.gates.length));
    const block = configurationBlock(runs);
    const title = runs.length < 2 ? "Configuration" : "Where the configurations differ";
    this.configuration.replaceChildren(...(block.rows.length ? [html("h2", { textContent: title }), tableElement(block)] : []));
  }

  showGates(runs) {
    this.gates.hidden = !runs.length;
    if (!runs.length) return;
    const run = runs.find((each) => each.name === this.gate.run) || runs[0];
    const series = gateSeries(run).includes(this.gate.series) ? this.gate.series : gateSeries(run)[0];
    const sublayer = Math.min(this.gate.sublayer, gateSublayers(run).length - 1);
    const set = (key, value) => {
      this.gate = { run: run.name, series, sublayer, [key]: value };
      this.showGates(runs);
    };
    const key = JSON.stringify([runs.map((each) => each.name), gateSeries(run), gateSublayers(run), run.name, series, sublayer]);
    if (key !== this.gateKey) {
      this.gateControls.replaceChildren(
        choice("run", runs.map((each) => [each.name, each.name]), run.name, (value) => set("run", value)),
        choice("series", gateSeries(run).map((name) => [name, name]), series, (value) => set("series", value)),
        choice("sublayer", gateSublayers(run).map((name, s) => [name, s]), sublayer, (value) => set("sublayer", Number(value))));
      this.gateKey = key;
    }
    this.showFigures(this.gateCharts, gateBlocks(run, series, sublayer));
  }
}
