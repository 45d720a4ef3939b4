// A text as its tokens, each coloured by a number; the arrow keys walk through them.
const { html } = ddlFigure;

// Spaces and line ends as signs that can be seen, and the end-of-text that begins a text by a shorter name.
export const visible = (text) => (text === "<|endoftext|>" ? "⟨start⟩" : text).replace(/ /g, "·").replace(/\n/g, "↵").replace(/\t/g, "→");
export const percent = (logprob) => (logprob === null ? "" : `${(100 * Math.exp(logprob)).toPrecision(3).replace(/\.?0+$/, "")}%`);

// Colours of the background: one that deepens as a token becomes less likely, two for differences.
const kSurprise = { light: "204, 82, 0", dark: "240, 129, 61" };
const kMore = { light: "0, 104, 168", dark: "77, 163, 232" };
const kLess = { light: "204, 82, 0", dark: "240, 129, 61" };
export function surpriseColour(logprob, theme) {
  return logprob === null ? "" : `rgba(${kSurprise[theme]}, ${(0.55 * Math.min(1, -logprob / 10)).toFixed(3)})`;
}
export function differenceColour(difference, theme) {
  return difference === null ? "" : `rgba(${(difference > 0 ? kMore : kLess)[theme]}, ${(0.7 * Math.min(1, Math.abs(difference) / 3)).toFixed(3)})`;
}

export class TokenStrip {
  // onLook(index): a token has the pointer or the focus; onChoose(index): it was clicked.
  constructor(label, onLook, onChoose) {
    [this.onLook, this.onChoose] = [onLook, onChoose];
    this.element = html("div", { className: "strip", role: "group", "aria-label": label });
    this.element.addEventListener("keydown", (event) => this.walk(event));
    const index = (event) => Number(event.target.closest(".token")?.dataset.index ?? -1);
    for (const kind of ["pointerover", "focusin"]) this.element.addEventListener(kind, (event) => index(event) >= 0 && this.onLook(index(event)));
    this.element.addEventListener("click", (event) => index(event) >= 0 && this.onChoose(index(event)));
  }
  clear() {
    this.element.replaceChildren();
  }
  // token: {text, logprob}; `own`: written by the model, not part of the prompt.
  add(token, own) {
    const index = this.element.children.length;
    const blank = /^\s+$/.test(token.text);
    const shown = blank ? visible(token.text) + token.text.replace(/[^\n]/g, "") : token.text === "<|endoftext|>" ? visible(token.text) : token.text;
    const element = html("span", { className: own ? "token own" : "token", role: "button", tabIndex: index === 0 ? 0 : -1, textContent: shown,
      "data-index": index, "aria-label": `${token.text}${token.logprob === null ? "" : `, probability ${percent(token.logprob)}`}` });
    this.element.append(element);
  }
  colour(colourOf) {
    [...this.element.children].forEach((element, i) => (element.style.backgroundColor = colourOf(i)));
  }
  mark(index) {
    [...this.element.children].forEach((element, i) => element.classList.toggle("marked", i === index));
  }
  walk(event) {
    const now = Number(event.target.dataset?.index ?? 0);
    const last = this.element.children.length - 1;
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: last }[event.key];
    if (event.key === "Enter" || event.key === " ") this.onChoose(now);
    else if (to === undefined) return;
    else {
      event.target.tabIndex = -1;
      const element = this.element.children[Math.max(0, Math.min(last, to))];
      element.tabIndex = 0;
      element.focus();
    }
    event.preventDefault();
  }
}
