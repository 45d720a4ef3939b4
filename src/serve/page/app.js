// The page: which view is shown, the theme, and what is wrong. The address says all that is chosen, so that it can be kept or
// sent: #view=runs&run=a&run=b&x=tokens
import { listModels, listRuns } from "./api.js";
import { PlaygroundView } from "./playground.js";
import { ReportsView } from "./reports.js";
import { RunsView } from "./runs.js";

const { html } = ddlFigure;
const root = document.documentElement;

const kViews = { runs: ["Runs", RunsView], playground: ["Playground", PlaygroundView], reports: ["Reports", ReportsView] };

// --- the theme: the system's, or the one that was chosen here before

const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const wished = () => {
  const chosen = address().get("theme") || localStorage.getItem("theme");
  return ["light", "dark"].includes(chosen) ? chosen : darkSystem.matches ? "dark" : "light";
};
const theme = () => root.dataset.theme;
function showTheme(value) {
  root.dataset.theme = value;
  document.getElementById("theme").textContent = value === "dark" ? "light theme" : "dark theme";
  view?.redraw();
}
document.getElementById("theme").onclick = () => {
  const other = theme() === "dark" ? "light" : "dark";
  localStorage.setItem("theme", other);
  change((chosen) => chosen.delete("theme"));
  showTheme(other);
};
darkSystem.addEventListener("change", () => showTheme(wished()));

// --- what the address says

function address() {
  return new URLSearchParams(location.hash.slice(1));
}
function change(edit) {
  const chosen = address();
  edit(chosen);
  history.replaceState(null, "", "#" + chosen);
}

// --- what is wrong, in one line below the top; null: nothing

const trouble = document.getElementById("trouble");
function say(message) {
  trouble.textContent = message || "";
  trouble.hidden = !message;
}

// --- views

let view = null;
const page = { theme, say, address, change };

function showView() {
  const name = Object.hasOwn(kViews, address().get("view")) ? address().get("view") : first;
  document.getElementById("views").replaceChildren(...Object.entries(kViews).map(([key, [label]]) => {
    const link = html("a", { href: `#view=${key}`, textContent: label });
    if (key === name) link.setAttribute("aria-current", "page");
    return link;
  }));
  if (view?.name === name) {
    view.follow?.();
    return;
  }
  view?.close();
  say(null);
  view = new kViews[name][1](page);
  view.name = name;
  document.title = `${kViews[name][0]} · Deep Delta`;
  const main = document.getElementById("view");
  main.className = name;
  main.replaceChildren(view.element);
  view.redraw();
}

let first = "runs";
showTheme(wished());
if (!address().get("view")) {
  try {
    const [models, runs] = [await listModels(), await listRuns()];
    if (models.length || !runs.length) first = "playground";
  } catch {
    // the view says what is wrong
  }
}
addEventListener("hashchange", showView);
showView();
