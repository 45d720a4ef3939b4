// One model's text: its tokens with their probabilities, and how the model read it.
import { postStream } from "./api.js";
import { GateMap } from "./gate_map.js";
import { differenceColour, percent, surpriseColour, TokenStrip, visible } from "./token_strip.js";
import { ranked, readClamped, textOf, tokenBytes } from "./trace.js";

const { html, button } = ddlFigure;
const { shortNumber } = ddlCharts;

// The end-of-text that the server puts in front of a text is not part of it.
const isStart = (token, i) => i === 0 && token.text === "<|endoftext|>";
const signedNumber = (v) => (v > 0 ? "+" : "") + shortNumber(v, 2);

export class Pane {
  // settings: {theme, say, onBranch(text): continue from this text}
  constructor(settings) {
    this.settings = settings;
    this.title = html("h2", {});
    this.facts = html("p", { className: "note facts" });
    this.strip = new TokenStrip("the text, token by token", (i) => this.look(i), (i) => this.choose(i));
    this.card = html("div", { className: "card", "aria-live": "polite" });
    this.map = new GateMap({ theme: settings.theme, onToken: (i) => this.mark(i), onClamp: (clamp) => this.hold(clamp) });
    this.key = html("p", { className: "note" });
    const text = html("div", { className: "text-column" }, [this.strip.element, this.key, this.facts]);
    this.element = html("section", { className: "pane" }, [this.title, html("div", { className: "read" }, [text, this.card]), this.map.element]);
    this.clear();
  }
  clear() {
    Object.assign(this, { tokens: [], text: "", trace: null, other: null, clamp: null, marked: null, free: null });
    this.strip.clear();
    this.card.replaceChildren();
    this.map.chosen = null;
    this.map.show(null, null);
    this.facts.textContent = this.key.textContent = "";
  }
  redraw() {
    this.map.redraw();
    this.colour();
  }

  // --- writing

  // Writes on from the prompt, token by token. Where it is stopped, what there is stays.
  async write(model, prompt, options, signal) {
    this.clear();
    [this.model, this.prompt, this.text, this.options] = [model, prompt, prompt, options];
    this.add({ text: prompt, logprob: null, best: [] }, false);
    const start = performance.now();
    let first = null;
    let count = 0;
    try {
      for await (const { choices } of postStream("/v1/completions", { model, prompt, logprobs: 5, ...options }, signal)) {
        if (!choices.length) continue;
        first ??= performance.now() - start;
        this.text += choices[0].text;
        const { tokens = [], token_logprobs: own, top_logprobs: best } = choices[0].logprobs || {};
        tokens.forEach((text, i) => this.add({ text, logprob: own[i], best: ranked(best[i]) }, true));
        count += tokens.length;
      }
    } finally {
      if (count) this.speed = `${count} tokens, the first after ${Math.round(first)} ms, ${shortNumber(Math.round((1000 * count) / (performance.now() - start)))} per second`;
    }
  }
  add(token, own) {
    this.tokens.push(token);
    this.strip.add(token, own);
    this.colour();
  }

  // --- reading

  // What the model made of the text.
  take(model, prompt, text, trace) {
    Object.assign(this, { model, prompt, text, trace, clamp: null });
    this.show(trace, prompt);
  }
  // The text as the tokens of a trace; those after the prompt are the model's own.
  show(trace, prompt) {
    this.strip.clear();
    this.tokens = trace.tokens;
    const promptBytes = new TextEncoder().encode(prompt).length;
    let bytes = 0;
    trace.tokens.forEach((token, i) => {
      this.strip.add(token, bytes >= promptBytes);
      if (isStart(token, i)) this.strip.element.firstChild.classList.add("start");
      else bytes += tokenBytes(token.text)?.length ?? 0;
    });
    this.colour();
    this.map.show(trace, this.clamp);
    const known = trace.tokens.filter((token) => token.logprob !== null);
    const loss = -known.reduce((sum, token) => sum + token.logprob, 0) / Math.max(1, known.length);
    this.facts.textContent = [known.length ? `loss ${shortNumber(loss, 3)} nats per token, perplexity ${shortNumber(Math.exp(loss), 1)}` : "", this.speed,
      this.trace.unread ? `not read: the last ${this.trace.unread === 1 ? "token" : `${this.trace.unread} tokens`}, beyond the context` : ""].filter(Boolean).join(" · ");
    if (this.marked !== null && this.marked < this.tokens.length) this.mark(this.marked);
  }

  // The numbers that another reading gave the same tokens: of the other model, or without the clamp.
  compare(name, tokens) {
    const same = tokens && tokens.length === this.tokens.length && tokens.every((token, i) => token.text === this.tokens[i].text);
    this.other = same ? { name, tokens } : null;
    if (tokens && !same) this.settings.say("The two models cut this text into different tokens: their probabilities cannot be compared one by one.");
    this.colour();
    if (this.marked !== null) this.showCard(this.marked);
  }
  difference(i) {
    const [own, other] = [this.tokens[i]?.logprob ?? null, this.other?.tokens[i]?.logprob ?? null];
    return own === null || other === null ? null : own - other;
  }
  colour() {
    const theme = this.settings.theme();
    this.strip.colour((i) => (this.other ? differenceColour(this.difference(i), theme) : surpriseColour(this.tokens[i].logprob, theme)));
    this.key.textContent = !this.tokens.length ? "" : this.other
      ? `Blue: more likely than ${this.other.name}; orange: less likely. Full colour at a difference of 3 in log-probability.`
      : "The deeper the orange, the less the model expected the token. Choose one for its five best alternatives.";
  }

  // --- a clamp

  async hold(clamp) {
    this.stop?.abort();
    this.stop = new AbortController();
    try {
      if (!clamp) {
        this.clamp = null;
        this.show(this.trace, this.prompt);
        this.compare(null, null);
        return this.showContinuation(null);
      }
      const signal = this.stop.signal;
      const [held, written] = await Promise.all([readClamped(this.model, this.trace.ids, clamp, null, signal), this.options ? readClamped(this.model, this.prompt, clamp, this.options, signal) : null]);
      this.clamp = clamp;
      this.show(held, this.prompt);
      this.compare("without the clamp", this.trace.tokens);
      this.showContinuation(written && written.written);
    } catch (error) {
      if (error.name !== "AbortError") this.settings.say(error.message);
    }
  }
  showContinuation(text) {
    this.element.querySelector(".continuation")?.remove();
    if (text === null) return;
    this.key.after(html("p", { className: "continuation" }, [html("span", { className: "note", textContent: "Written under the clamp, from the same prompt and seed: " }),
      html("span", { textContent: this.prompt }), html("span", { className: "own", textContent: text })]));
  }

  // --- one token

  look(i) {
    if (this.pinned === undefined || this.pinned === null) this.showCard(i);
  }
  choose(i) {
    this.pinned = this.pinned === i ? null : i;
    this.mark(i);
    this.map.chooseToken(i);
  }
  mark(i) {
    this.marked = i;
    this.strip.mark(i);
    this.showCard(i);
  }
  showCard(i) {
    const token = this.tokens[i];
    if (!token) return;
    const difference = this.difference(i);
    const likely = token.logprob === null ? "nothing comes before it" : `${percent(token.logprob)} (${shortNumber(token.logprob, 2)})${difference === null ? "" : `, ${signedNumber(difference)} against ${this.other.name}`}`;
    const rows = token.best.map((each) => {
      const bar = html("span", { className: "bar-of" });
      bar.style.width = `${Math.max(1, 100 * Math.exp(each.logprob))}%`;
      const row = button("", () => this.branch(i, each.text));
      row.title = "continue from here with this token";
      row.classList.toggle("actual", each.text === token.text);
      row.append(html("span", { className: "word", textContent: visible(each.text) }), html("span", { className: "value", textContent: percent(each.logprob) }), bar);
      return html("li", {}, [row]);
    });
    this.card.replaceChildren(html("h3", { textContent: `“${visible(token.text)}”` }), html("p", { className: "note", textContent: likely }), html("ol", {}, rows));
  }
  // The text up to a token, with another one in its place.
  branch(i, text) {
    const before = this.tokens.slice(0, i).filter((token, k) => !isStart(token, k)).map((token) => token.text);
    const prompt = textOf([...before, text]);
    if (prompt === null) this.settings.say(`The text cannot continue with “${visible(text)}”: that token is no text, or only a part of a character.`);
    else this.settings.onBranch(prompt);
  }
}
