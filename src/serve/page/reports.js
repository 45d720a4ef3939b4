// The view of reports: `ddl report` of all runs, of a folder of runs, of one run.
import { listRuns, reportAddress } from "./api.js";

const { html } = ddlFigure;

const kMostRuns = 64; // of one report

const link = (text, names) => html("a", { href: reportAddress(names), textContent: text, target: "_blank", rel: "noopener" });

// Runs by the folder they are in, largest first; "" is the folder that is watched itself.
function folders(runs) {
  const found = new Map();
  for (const run of runs) {
    const folder = run.name.split("/").slice(0, -1).join("/");
    if (!found.has(folder)) found.set(folder, []);
    found.get(folder).push(run);
  }
  return [...found.entries()].sort(([a], [b]) => a.localeCompare(b));
}

export class ReportsView {
  constructor(page) {
    this.page = page;
    this.stop = new AbortController();
    this.body = html("div", {});
    this.element = html("div", { className: "one-column" }, [
      html("h2", { textContent: "Reports" }),
      html("p", { textContent: "A report is one page that can be kept: curves with seed bands, paired differences with intervals, gates, configurations and how to repeat the runs. It is made from what the runs have recorded when you open it." }),
      this.body]);
    this.show();
  }
  close() {
    this.stop.abort();
  }
  redraw() {}

  async show() {
    try {
      const runs = (await listRuns(this.stop.signal)).filter((run) => run.step > 0).sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
      this.body.replaceChildren(...(runs.length ? folders(runs).map(([folder, inside]) => this.folder(folder, inside)) : [html("p", { className: "note", textContent: "There are no runs with records yet." })]));
    } catch (error) {
      if (error.name !== "AbortError") this.page.say(error.message);
    }
  }

  folder(folder, runs) {
    const names = runs.map((run) => run.name);
    const few = names.slice(0, kMostRuns);
    const boxes = new Map();
    const compare = html("a", { textContent: "", target: "_blank", rel: "noopener" });
    const count = () => {
      const chosen = names.filter((name) => boxes.get(name).checked).slice(0, kMostRuns);
      const [some, which] = chosen.length ? [chosen, chosen.length === 1 ? "the chosen run" : `the ${chosen.length} chosen runs`] : [few, few.length === 1 ? "this run" : `all ${few.length} runs`];
      compare.href = reportAddress(some);
      compare.textContent = `Open the report of ${which}`;
    };
    const items = runs.map((run) => {
      const box = html("input", { type: "checkbox", onchange: count, "aria-label": `choose ${run.name}` });
      boxes.set(run.name, box);
      return html("li", {}, [box, link(run.name.slice(folder ? folder.length + 1 : 0), [run.name]), html("span", { className: "status", textContent: `${run.residual || "?"} · ${run.status}` })]);
    });
    count();
    return html("section", {}, [html("h3", { textContent: folder || "Runs" }), html("p", {}, [compare]),
      names.length > kMostRuns ? html("p", { className: "note", textContent: `A report shows at most ${kMostRuns} runs; choose some of these ${names.length}.` }) : null,
      html("ul", { className: "report-list" }, items)]);
  }
}
