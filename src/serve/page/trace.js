// What a model did with a text: POST /v1/ddl/trace. This file alone knows the answer's form (docs/serving.md).
import { postJson } from "./api.js";

// The best tokens of {"text": log-probability}, most likely first.
export const ranked = (top) => Object.entries(top || {}).map(([text, logprob]) => ({ text, logprob })).sort((a, b) => b.logprob - a.logprob);

const kMostWritten = 64; // tokens of a trace with a clamp

// The bytes of a token by its name: its text, or "bytes:\xe2\x82". Null where it has none: end-of-text, "token:50300".
export function tokenBytes(name) {
  if (name === "<|endoftext|>" || /^token:\d+$/.test(name)) return null;
  return /^bytes:(\\x[0-9a-f]{2})+$/.test(name) ? Uint8Array.from(name.split("\\x").slice(1), (hex) => parseInt(hex, 16)) : new TextEncoder().encode(name);
}
// The text of tokens by their names; null where they are no text.
export function textOf(names) {
  const bytes = names.map(tokenBytes);
  if (bytes.includes(null)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes.flatMap((each) => [...each])));
  } catch {
    return null;
  }
}

// How the model read a text, as far as it fits the context: a text that fills it has a token that is never read. Its best
// tokens come from the scorer of /v1/completions.
export async function readTrace(model, text, signal) {
  const { tokens, max_model_len: most } = await postJson("/tokenize", { model, prompt: text }, signal);
  const prompt = tokens.slice(0, most);
  const [answer, scored] = await Promise.all([
    postJson("/v1/ddl/trace", { model, prompt }, signal),
    postJson("/v1/completions", { model, prompt, max_tokens: 0, echo: true, logprobs: 5 }, signal)]);
  const best = scored.choices[0].logprobs.top_logprobs;
  return { ...fromAnswer(answer, (i) => ranked(best[i])), unread: tokens.length - prompt.length };
}

// The same while a series of one sublayer is held at a value: clamp is {sublayer, series, value}. The prompt is a text or
// token numbers. With `writing` ({max_tokens, temperature, top_p, seed}) it continues under the clamp.
export async function readClamped(model, prompt, clamp, writing, signal) {
  const { max_tokens = 0, temperature = 0, top_p = 1, seed = 0 } = writing || {};
  const answer = await postJson("/v1/ddl/trace", { model, prompt, clamp, max_tokens: Math.min(kMostWritten, max_tokens), temperature, top_p, seed }, signal);
  const best = answer.completion.logprobs.top_logprobs;
  return { ...fromAnswer(answer, (i) => ranked(best[i - answer.prompt_tokens])), written: answer.completion.text };
}

// {tokens: [{text, logprob, best: [...]}], ids, promptTokens, sublayers: [{name, kind, series, discrepancy_before, ...}]}
function fromAnswer(answer, bestOf) {
  return { tokens: answer.tokens.map(({ text, logprob }, i) => ({ text, logprob, best: bestOf(i) })), ids: answer.tokens.map(({ id }) => id), promptTokens: answer.prompt_tokens,
    sublayers: answer.sublayers.map((each) => ({ ...each, name: `${each.sublayer} ${each.kind}` })) };
}

const isNumberList = (series) => Array.isArray(series?.values) && series.values.every((v) => v === null || typeof v === "number");

// The series with one number per token and sublayer, the gate first.
export function scalarSeries(trace) {
  const names = Object.keys(trace.sublayers[0]?.series || {}).filter((name) => trace.sublayers.every((s) => isNumberList(s.series[name])));
  return names.sort((a, b) => (b === "gate") - (a === "gate"));
}
export const seriesRows = (trace, name) => trace.sublayers.map((s) => s.series[name].values);
export const seriesRange = (trace, name) => trace.sublayers[0].series[name].range || null;

// What one sublayer's write did at one token: readout and target per channel, where the rule has them.
export function writeAt(trace, sublayer, token) {
  const { series, discrepancy_before: before, discrepancy_after: after, name } = trace.sublayers[sublayer];
  const list = (key) => (series[key] ? [series[key].values[token]].flat() : null);
  return { name, token: trace.tokens[token], gate: series.gate?.values[token] ?? null, readout: list("readout"), target: list("target"),
    before: before?.[token] ?? null, after: after?.[token] ?? null,
    others: Object.entries(series).filter(([key]) => !["gate", "readout", "target"].includes(key)).map(([key]) => [key, list(key)]) };
}
