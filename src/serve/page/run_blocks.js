// Runs as blocks of a report (docs/report.md), which charts.js draws. Functions of their records and of what is chosen.
import { kNothing } from "./run_data.js";

export const kAxes = {
  step: { key: "step", label: "steps" },
  tokens: { key: "tokens", label: "tokens" },
  flops: { key: "flops", label: "FLOPs" },
  elapsed_s: { key: "elapsed_s", label: "seconds" },
};

// Names without what all of them share at their beginning and end, cut between words.
export function shortNames(names) {
  if (names.length < 2) return names.slice();
  const parts = names.map((name) => name.split(/(?<=[./_-])/));
  const shortest = Math.min(...parts.map((p) => p.length));
  let head = 0;
  while (head < shortest - 1 && parts.every((p) => p[head] === parts[0][head])) ++head;
  let tail = 0;
  while (tail < shortest - head - 1 && parts.every((p) => p.at(-1 - tail) === parts[0].at(-1 - tail))) ++tail;
  return parts.map((p) => p.slice(head, p.length - tail).join("").replace(/[./_-]$/, ""));
}

// A mean in which a record counts less the further it lies back: by 1/e after a share `reach` of the steps there are.
export function smoothed(steps, values, reach) {
  const span = reach * ((steps.at(-1) ?? 0) - (steps[0] ?? 0));
  if (!(span > 0)) return values;
  let sum = 0;
  let weight = 0;
  let before = steps[0] - 1;
  return values.map((value, i) => {
    const covered = steps[i] - before; // a point may stand for several steps
    before = steps[i];
    const kept = Math.exp(-covered / span);
    [sum, weight] = [sum * kept, weight * kept];
    if (value === null) return null;
    [sum, weight] = [sum + value * covered, weight + covered];
    return sum / weight;
  });
}

const kCharts = [
  { title: "Training loss", part: "training", value: "loss", unit: "nats per token", smooth: true },
  { title: "Validation loss", part: "validation", value: "loss", unit: "nats per token" },
  { title: "Gradient norm", part: "training", value: "grad_norm", unit: "norm", smooth: true },
  { title: "Learning rate", part: "training", value: "lr", unit: "rate" },
  { title: "Speed", part: "training", value: "tokens_per_s", unit: "tokens per second", smooth: true },
  { title: "Share of the floor", part: "training", value: "floor_share", unit: "time of the matrix products alone / time of a step", smooth: true },
];

// The charts that any of the runs has numbers for. A run without numbers stays in the legend, so that its colour is the same
// in all charts. With smoothing the records themselves are faint lines behind.
export function curveBlocks(runs, axis, smoothing) {
  const names = shortNames(runs.map((run) => run.name));
  return kCharts.filter(({ part, value }) => runs.some((run) => run.ready && run[part].values[value])).map(({ title, part, value, unit, smooth }) => {
    const series = runs.flatMap((run, i) => {
      const columns = run.ready ? run[part] : kNothing;
      const { mean = [], min, max } = columns.values[value] || {};
      const at = { x: { [axis]: columns[axis].slice(0, mean.length) }, group: names[i] };
      const line = { ...at, name: names[i], y: mean, style: "line" };
      if (!smooth || !(smoothing > 0)) return [min && mean.some((v, k) => min[k] !== v) ? { ...line, lo: min, hi: max } : line];
      return [{ ...line, y: smoothed(columns.step, mean, smoothing) }, { ...line, name: names[i] + " (records)", style: "faint" }];
    });
    return { kind: "lines", title, axes: [kAxes[axis]], y: { label: unit, scale: "linear" }, series };
  });
}

// --- gates

const sublayerName = (sublayer) => `${sublayer.sublayer} ${sublayer.kind}`;

// The series of gates that a run recorded, as ["gate", ...]
export const gateSeries = (run) => Object.keys(run.gates?.at(-1)?.sublayers[0]?.series || {});
export const gateSublayers = (run) => (run.gates?.at(-1)?.sublayers || []).map(sublayerName);

function thinned(records, most) {
  if (records.length <= most) return records;
  return Array.from({ length: most }, (_, i) => records[Math.round((i * (records.length - 1)) / (most - 1))]);
}

// Mean gates over depth and time, and for one sublayer the histogram over time and the discrepancy before and after its write.
export function gateBlocks(run, series, sublayer) {
  const records = thinned(run.gates, 40);
  if (!records.length) return [];
  const steps = records.map((record) => String(record.step));
  const of = (record, s) => record.sublayers[s]?.series[series];
  const number = (v) => (typeof v === "number" ? v : null);
  const range = of(records.at(-1), 0)?.range;
  const blocks = [{ kind: "heat", title: `Mean ${series} of every sublayer, while training`, unit: "mean over tokens", note: "A column is a step.",
    ...(series === "gate" ? { centre: 1 } : {}), columns: steps, rows: gateSublayers(run),
    values: gateSublayers(run).map((_, s) => records.map((record) => number(of(record, s)?.mean))) }];
  const at = { step: run.gates.map((record) => record.step) };
  const before = run.gates.map((record) => number(record.sublayers[sublayer]?.discrepancy_before));
  const after = run.gates.map((record) => number(record.sublayers[sublayer]?.discrepancy_after));
  if (before.some((v) => v !== null))
    blocks.push({ kind: "lines", title: `Discrepancy |v − r| at ${gateSublayers(run)[sublayer]}`, axes: [kAxes.step], y: { label: "mean over tokens", scale: "linear" },
      series: [{ name: "before the write", x: at, y: before, style: "line" }, { name: "after the write", x: at, y: after, style: "line" }] });
  const counts = records.map((record) => of(record, sublayer)?.histogram);
  if (counts.every(Array.isArray) && counts[0].length && range) {
    const bins = counts[0].length;
    const edge = (b) => ddlCharts.shortNumber(range[0] + ((range[1] - range[0]) * b) / bins, 2);
    const share = (list, b) => list[b] / (list.reduce((sum, n) => sum + n, 0) || 1);
    const down = [...Array(bins).keys()].reverse();
    blocks.push({ kind: "heat", title: `Histogram of the ${series} of ${gateSublayers(run)[sublayer]}`, unit: "share of tokens", note: "A column is a step.",
      columns: steps, rows: down.map((b) => `${edge(b)} to ${edge(b + 1)}`), values: down.map((b) => counts.map((list) => share(list, b))) });
  }
  return blocks;
}

// --- configurations

function flat(config, within = "") {
  return Object.entries(config || {}).flatMap(([key, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value, within + key + ".") : [[within + key, value]]);
}
const asText = (value) => (value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));

// The options in which runs differ, a column per run; of one run, all of them.
export function configurationBlock(runs) {
  const there = runs.filter((run) => run.ready);
  const names = shortNames(there.map((run) => run.name));
  const configs = there.map((run) => new Map(flat(run.config)));
  const keys = [...new Set(configs.flatMap((config) => [...config.keys()]))];
  const rows = keys.map((key) => [key, ...configs.map((config) => asText(config.get(key)))])
    .filter((row) => there.length < 2 || row.slice(1).some((text) => text !== row[1]));
  return { kind: "table", columns: ["option", ...names].map((name) => ({ name, align: "left" })), rows };
}
