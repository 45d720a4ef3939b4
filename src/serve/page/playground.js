// The playground: a prompt, what one model or two write from it, and how they read it.
import { listModels } from "./api.js";
import { Pane } from "./pane.js";
import { readTrace } from "./trace.js";

const { html, button } = ddlFigure;

const kRetrySeconds = 2;
// What stays while the reader looks at another view.
const remembered = { prompt: "", max_tokens: 48, temperature: 0.8, top_p: 1, seed: 1, a: null, b: "" };
const kNumbers = [["max_tokens", "tokens", 1, 1024, 1], ["temperature", "temperature", 0, 2, 0.1], ["top_p", "top p", 0, 1, 0.05], ["seed", "seed", 0, 2 ** 31 - 1, 1]];

// A model to choose, and which of its checkpoints.
class ModelChoice {
  constructor(label, models, chosen, none, onChange) {
    this.models = models;
    const options = [...(none ? [["", none]] : []), ...models.map((model) => [model.id, model.id])];
    this.select = html("select", { onchange: () => this.showSteps() || onChange(false) }, options.map(([value, text]) => html("option", { value, textContent: text, selected: value === chosen })));
    this.range = html("input", { type: "range", min: 0, step: 1, "aria-label": "checkpoint", oninput: () => this.showStep(), onchange: () => onChange(true) });
    this.step = html("output", {});
    this.slider = html("label", { className: "slider" }, [html("span", { textContent: "checkpoint" }), this.range, this.step]);
    this.element = html("div", { className: "model-choice" }, [html("label", {}, [html("span", { textContent: label }), this.select]), this.slider]);
    this.showSteps();
  }
  model() {
    return this.models.find((each) => each.id === this.select.value) || null;
  }
  steps() {
    return this.model()?.checkpoints || [];
  }
  showSteps() {
    this.slider.hidden = this.steps().length < 2;
    this.range.max = Math.max(0, this.steps().length - 1);
    this.range.value = this.range.max;
    this.showStep();
  }
  showStep() {
    this.step.textContent = this.steps().length ? `step ${this.steps()[this.range.value]}` : "";
  }
  // As the server takes it; the newest checkpoint is the model itself.
  name() {
    if (!this.model()) return "";
    return Number(this.range.value) < this.steps().length - 1 ? `${this.model().id}@${this.steps()[this.range.value]}` : this.model().id;
  }
  title() {
    const { ddl } = this.model();
    const step = this.steps()[this.range.value] ?? ddl?.step;
    return [this.model().id, ddl?.residual, ddl?.parameters ? `${ddlCharts.shortNumber(ddl.parameters)} parameters` : null, step === null || step === undefined ? null : `step ${step}`].filter(Boolean).join(" · ");
  }
}

export class PlaygroundView {
  constructor(page) {
    this.page = page;
    this.stop = new AbortController();
    this.element = html("div", { className: "playground-body" }, [html("p", { className: "note", textContent: "Looking for models…" })]);
    this.panes = [];
    this.begin();
  }
  close() {
    this.stop.abort();
    this.work?.abort();
    clearTimeout(this.timer);
  }
  redraw() {
    for (const pane of this.panes) pane.redraw();
  }

  // Models may still be on their way into memory.
  async begin() {
    try {
      const models = await listModels(this.stop.signal);
      const loaded = models.filter((model) => model.ddl);
      if (loaded.length) return this.show(loaded);
      this.element.replaceChildren(...(models.length ? [html("p", { className: "note", textContent: "The models are being loaded…" })]
        : [html("p", { textContent: "No model is served here. To talk to one, start the server with it:" }), html("pre", {}, [html("code", { textContent: "./ddl serve runs/mine" })])]));
      if (!models.length) return;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.page.say(error.message);
    }
    this.timer = setTimeout(() => this.begin(), 1000 * kRetrySeconds);
  }

  show(models) {
    const settings = { theme: this.page.theme, say: this.page.say, onBranch: (text) => {
      this.prompt.value = text;
      this.run(true);
    } };
    this.panes = [new Pane(settings), new Pane(settings)];
    this.prompt = html("textarea", { rows: 3, spellcheck: false, placeholder: "Once upon a time", "aria-label": "prompt", value: remembered.prompt,
      oninput: () => (remembered.prompt = this.prompt.value) });
    const changed = (again) => {
      [remembered.a, remembered.b] = this.choices.map((choice) => choice.select.value);
      if (again && this.ran) this.run(this.ran.writes);
    };
    this.choices = [new ModelChoice("model", models, remembered.a, null, changed), new ModelChoice("compare with", models, remembered.b, "no other", changed)];
    this.numbers = kNumbers.map(([key, label, min, max, step]) => {
      const input = html("input", { type: "number", min, max, step, value: remembered[key], oninput: () => input.validity.valid && input.value !== "" && (remembered[key] = Number(input.value)) });
      return html("label", {}, [html("span", { textContent: label }), input]);
    });
    this.go = button("Write", () => (this.work ? this.work.abort() : this.run(true)));
    this.go.className = "primary";
    this.look = button("Only read the prompt", () => this.run(false));
    this.form = html("div", { className: "prompt-form" }, [this.prompt, html("div", { className: "toolbar" }, this.choices.map((choice) => choice.element)),
      html("div", { className: "toolbar" }, [...this.numbers, html("span", { className: "buttons" }, [this.go, this.look])])]);
    this.form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !this.work) this.run(true);
    });
    this.holder = html("div", { className: "panes" });
    this.element.replaceChildren(this.form, this.holder);
  }

  // Both models write (or read) the same prompt with the same seed; then each reads the other's text, too.
  async run(writes) {
    this.work?.abort();
    const work = (this.work = new AbortController());
    this.ran = { writes };
    const used = this.choices.map((choice, i) => ({ pane: this.panes[i], name: choice.name(), title: choice.name() && choice.title() })).filter((each) => each.name);
    for (const each of used) each.pane.title.textContent = each.title;
    this.holder.classList.toggle("two", used.length > 1);
    this.holder.replaceChildren(...used.map((each) => each.pane.element));
    this.showWorking(true);
    this.page.say(null);
    const prompt = this.prompt.value || (writes ? this.prompt.placeholder : "");
    const { max_tokens, temperature, top_p, seed } = remembered;
    try {
      if (!prompt) throw new Error("Type a prompt first.");
      await Promise.all(used.map(({ pane, name }) => this.one(pane, name, prompt, writes ? { max_tokens, temperature, top_p, seed } : null, work)));
      if (used.length > 1)
        await Promise.all(used.map(async ({ pane }, i) => {
          const other = used[1 - i];
          const trace = await readTrace(other.name, pane.text, work.signal);
          pane.compare(other.name, trace.tokens);
        }));
    } catch (error) {
      if (error.name !== "AbortError") this.page.say(error.message);
    }
    if (this.work === work) {
      this.work = null;
      this.showWorking(false);
    }
  }
  // Where writing is stopped, what was written is read all the same; where other work has begun meanwhile, the pane is its.
  async one(pane, name, prompt, options, work) {
    pane.pinned = null;
    pane.clear();
    pane.speed = "";
    if (options)
      try {
        await pane.write(name, prompt, options, work.signal);
      } catch (error) {
        if (error.name !== "AbortError" || this.stop.signal.aborted) throw error;
      }
    if (this.work !== work) return;
    const text = options ? pane.text : prompt;
    const trace = await readTrace(name, text, this.stop.signal);
    if (this.work === work) pane.take(name, prompt, text, trace);
  }
  showWorking(working) {
    this.go.textContent = working ? "Stop" : "Write";
    this.look.disabled = working;
  }
}
