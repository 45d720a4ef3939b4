// What is known of a run: its records as columns, which grow while it trains.
import { getRun } from "./api.js";

const kPoints = 1000; // asked for at first; more come one by one
const kMost = 4000; // then all are asked for again, thinned by the server

const kPlaces = ["step", "tokens", "flops", "elapsed_s"];

// {step: [...], tokens: [...], ..., values: {loss: {mean: [...], min: [...], max: [...]}, ...}} of an answer's part.
function columnsOf(part) {
  const columns = { values: {} };
  for (const key of kPlaces) columns[key] = part[key] || part.step.map(() => null);
  for (const [name, value] of Object.entries(part))
    if (!Array.isArray(value)) columns.values[name] = { mean: value.mean, min: value.min || value.mean, max: value.max || value.mean };
  return columns;
}
// Adds what is later than the last place there is.
function append(columns, more) {
  const before = columns.step.length;
  const last = columns.step.at(-1) ?? -1;
  const from = more.step.findIndex((step) => step > last);
  if (from < 0) return false;
  for (const key of kPlaces) columns[key] = columns[key].concat(more[key].slice(from));
  const nothing = (count) => ({ mean: Array(count).fill(null), min: Array(count).fill(null), max: Array(count).fill(null) });
  for (const name of new Set([...Object.keys(columns.values), ...Object.keys(more.values)])) {
    const old = columns.values[name] || nothing(before);
    const added = more.values[name] || nothing(more.step.length);
    columns.values[name] = Object.fromEntries(["mean", "min", "max"].map((key) => [key, old[key].concat(added[key].slice(from))]));
  }
  return true;
}

export class RunData {
  constructor(name) {
    this.name = name;
    this.ready = false;
  }

  // Asks for what is new. Whether there was anything. The last step is asked for again: its validation and its gates are
  // recorded after it.
  async refresh(signal) {
    const grows = this.ready && this.training.step.length < kMost;
    const after = grows && this.training.step.length ? this.training.step.at(-1) - 1 : undefined;
    const answer = await getRun(this.name, { points: kPoints, after }, signal);
    if (after === undefined || answer.restarts !== this.restarts) {
      if (after !== undefined) {
        this.ready = false;
        return this.refresh(signal);
      }
      Object.assign(this, { training: columnsOf(answer.training), validation: columnsOf(answer.validation), gates: answer.gates,
        config: answer.config || {}, restarts: answer.restarts, ready: true });
      return true;
    }
    const gates = answer.gates.filter((record) => record.step > (this.gates.at(-1)?.step ?? -1));
    this.gates = this.gates.concat(gates);
    const trained = append(this.training, columnsOf(answer.training));
    const validated = append(this.validation, columnsOf(answer.validation));
    return trained || validated || gates.length > 0;
  }
}

// The columns of a run that is not there yet.
export const kNothing = { step: [], tokens: [], flops: [], elapsed_s: [], values: {} };
