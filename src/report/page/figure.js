// A chart with what a reader does to it: another axis, series off and on, a closer look, the values under the pointer or
// the arrow keys, the picture as a file, the numbers as a table. The report and the live page use the same.
"use strict";

const ddlFigure = (() => {
  const { draw, legendOf, keyLine, tableOf, shortNumber, isNumber, svg } = ddlCharts;

  function html(name, properties = {}, children = []) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties))
      if (key.includes("-") || key === "role" || key === "colspan" || key === "scope") element.setAttribute(key, value);
      else element[key] = value;
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }
  function button(label, onClick, pressed) {
    const element = html("button", { type: "button", textContent: label, onclick: onClick });
    if (pressed !== undefined) element.setAttribute("aria-pressed", pressed);
    return element;
  }

  function tableElement(block) {
    const head = html("tr", {}, block.columns.map((c) => html("th", { className: c.align === "right" ? "right" : "left", scope: "col", textContent: c.name })));
    const rows = block.rows.map((row) => html("tr", {}, row.map((cell, i) => {
      const column = block.columns[i] || {};
      const td = html("td", { className: column.align === "right" ? "right" : "left" });
      const isText = typeof cell === "string";
      td.textContent = isText ? cell : shortNumber(cell, column.digits);
      if (isText && cell.length <= 32) td.classList.add("short");
      if (isNumber(cell)) td.title = String(cell); // every digit
      return td;
    })));
    const table = html("table", {}, [block.caption ? html("caption", { textContent: block.caption }) : null, html("thead", {}, [head]), html("tbody", {}, rows)]);
    return html("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": block.caption || "table" }, [table]);
  }

  // --- a picture that stands alone

  const kCarried = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
    "font-size", "font-weight", "font-family", "text-anchor"];

  // What the page's style says about each element becomes its attributes.
  function standalone(block, view) {
    const width = 860;
    const holder = html("div", {});
    holder.style.cssText = "position:absolute;visibility:hidden;width:860px";
    document.body.append(holder);
    const { root } = draw[block.kind](block, { ...view, width, alone: true });
    holder.append(root);
    // All of them are inherited, so an element needs those in which it differs from its parent. They are read before
    // any class goes: colours come from classes further out.
    const drawn = [root, ...root.querySelectorAll("*:not(title)")];
    const styles = new Map(drawn.map((element) => [element, kCarried.map((key) => getComputedStyle(element).getPropertyValue(key))]));
    for (const [element, style] of styles) {
      const outer = styles.get(element.parentNode);
      kCarried.forEach((key, i) => {
        if (!outer || outer[i] !== style[i]) element.setAttribute(key, style[i]);
        else element.removeAttribute(key);
      });
    }
    for (const element of drawn) element.removeAttribute("class");
    const [, , w, h] = root.getAttribute("viewBox").split(" ").map(Number);
    const pad = 16;
    root.setAttribute("viewBox", `${-pad} ${-pad} ${w + 2 * pad} ${h + 2 * pad}`);
    root.setAttribute("width", w + 2 * pad);
    root.setAttribute("height", h + 2 * pad);
    root.prepend(svg("rect", { x: -pad, y: -pad, width: w + 2 * pad, height: h + 2 * pad, fill: getComputedStyle(document.documentElement).backgroundColor }));
    const text = new XMLSerializer().serializeToString(root);
    holder.remove();
    return text;
  }
  function saveSvg(block, view) {
    const url = URL.createObjectURL(new Blob([standalone(block, view)], { type: "image/svg+xml" }));
    const name = (block.title || block.kind).toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart";
    html("a", { href: url, download: name + ".svg" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // --- reading values off a chart of lines

  function nearest(values, target, scale) {
    let best = -1;
    let distance = Infinity;
    for (let i = 0; i < values.length; ++i) {
      if (!scale.fits(values[i])) continue;
      const d = Math.abs(scale(values[i]) - scale(target));
      if (d < distance) [best, distance] = [i, d];
    }
    return best;
  }

  class Readout {
    constructor(plot) {
      this.plot = plot;
      this.box = html("div", { className: "readout", hidden: true, "aria-live": "polite" });
      this.marks = svg("g", {});
      this.at = null;
      plot.append(this.box);
    }
    attach(drawn) {
      this.drawn = drawn;
      this.marks = svg("g", {});
      drawn.root.append(this.marks);
      this.hide();
    }
    hide() {
      this.box.hidden = true;
      this.marks.replaceChildren();
      this.at = null;
    }
    show(target) {
      const { shown, x, y, axis, frame } = this.drawn;
      const found = shown.filter(({ series }) => series.style !== "faint").map(({ entry, series }) => ({ entry, series, i: nearest(series.x[axis.key] || [], target, x) })).filter((f) => f.i >= 0);
      if (!found.length) return this.hide();
      // All values belong to the place nearest to the pointer.
      const at = found.map((f) => f.series.x[axis.key][f.i]).reduce((a, b) => (Math.abs(x(b) - x(target)) < Math.abs(x(a) - x(target)) ? b : a));
      this.at = at;
      this.marks.replaceChildren(svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: frame.top, y2: frame.bottom }));
      const lines = [html("div", { className: "at", textContent: `${axis.label} ${shortNumber(at)}` })];
      for (const { entry, series } of found) {
        const i = nearest(series.x[axis.key], at, x);
        const value = series.y[i];
        if (Math.abs(x(series.x[axis.key][i]) - x(at)) > 12) continue; // this series has nothing here
        if (y.fits(value)) this.marks.append(svg("circle", { class: "dot s" + entry.colour, cx: x(series.x[axis.key][i]), cy: y(value), r: 4 }));
        const range = isNumber(series.lo?.[i]) && isNumber(series.hi?.[i]) ? ` (${shortNumber(series.lo[i])} to ${shortNumber(series.hi[i])})` : "";
        lines.push(html("div", { className: "s" + entry.colour }, [html("span", { className: "key" }), html("span", { textContent: series.name }),
          html("span", { className: "value", textContent: shortNumber(value) + range })]));
      }
      this.box.replaceChildren(...lines);
      this.box.hidden = false;
      const scale = this.plot.clientWidth / this.drawn.root.viewBox.baseVal.width;
      const place = x(at) * scale;
      const room = this.plot.clientWidth - this.box.offsetWidth;
      this.box.style.left = `${Math.max(0, Math.min(room, place + (place > this.plot.clientWidth / 2 ? -this.box.offsetWidth - 14 : 14)))}px`;
      this.box.style.top = `${frame.top * scale}px`;
    }
    // One recorded place to the left or right.
    step(direction) {
      const { shown, axis, x } = this.drawn;
      const longest = shown.map((s) => s.series.x[axis.key] || []).reduce((a, b) => (b.length > a.length ? b : a), []);
      if (!longest.length) return;
      const now = this.at === null ? -1 : nearest(longest, this.at, x);
      this.show(longest[Math.max(0, Math.min(longest.length - 1, now < 0 ? (direction > 0 ? 0 : longest.length - 1) : now + direction))]);
    }
  }

  // --- the figure

  // settings: {axis: the key to begin with, theme: () => "light" or "dark", width: () => pixels, or 0 for those there
  // are, onRead: (x or null) => what else is to be done where the reader points; onDraw: (picture) => what else is to be
  // drawn; both optional}. The element's `redraw` draws
  // it for the width and the theme it has by then, `update` also for a block whose members have changed, and `read`
  // shows the values at x (null: none).
  function figure(block, settings) {
    const isLines = block.kind === "lines";
    const view = { hidden: new Set(), zoom: null, axis: settings.axis, xScale: null, yScale: isLines ? block.y.scale || "linear" : null };
    const chosenAxis = () => block.axes.find((a) => a.key === view.axis) || block.axes[0];
    const xScale = () => view.xScale || chosenAxis().scale || "linear";
    if (isLines && !block.axes.some((a) => a.key === view.axis)) view.axis = block.axes[0].key;
    const plot = html("div", { className: "plot" });
    const legend = html("div", { className: "legend" });
    const controls = html("div", { className: "head controls" });
    const readout = isLines ? new Readout(plot) : null;
    let drawn = null;

    function redraw() {
      const width = Math.max(280, Math.round(settings.width() || plot.clientWidth || 800));
      drawn?.root.remove();
      try {
        drawn = draw[block.kind](block, { ...view, width, theme: settings.theme() });
      } catch (error) {
        plot.replaceChildren(html("p", { className: "broken", textContent: `This chart cannot be drawn: ${error.message}` }));
        return;
      }
      plot.prepend(drawn.root);
      readout?.attach(drawn);
      settings.onDraw?.(drawn);
    }
    function choose(change) {
      change();
      showControls();
      redraw();
    }
    function update() {
      const at = readout ? readout.at : null;
      choose(() => {});
      showNumbers();
      if (at !== null) readout.show(at);
    }
    function read(at) {
      if (!readout || !drawn) return;
      if (at === null) readout.hide();
      else readout.show(at);
    }
    const told = () => settings.onRead?.(readout.at);
    function showControls() {
      const parts = [];
      if (isLines && block.axes.length > 1)
        parts.push(html("span", { className: "switch", role: "group", "aria-label": "horizontal axis" }, block.axes.map((axis) =>
          button(axis.label, () => choose(() => ([view.axis, view.zoom, view.xScale] = [axis.key, null, null])), view.axis === axis.key))));
      if (isLines && block.series.every((s) => s.y.every((v) => v === null || v > 0)))
        parts.push(button("log", () => choose(() => (view.yScale = view.yScale === "log" ? "linear" : "log")), view.yScale === "log"));
      if (isLines && block.series.every((s) => (s.x[chosenAxis().key] || []).every((v) => v === null || v > 0)))
        parts.push(button("log x", () => choose(() => ([view.xScale, view.zoom] = [xScale() === "log" ? "linear" : "log", null])), xScale() === "log"));
      if (view.zoom) parts.push(button("whole range", () => choose(() => (view.zoom = null))));
      parts.push(button("save SVG", () => saveSvg(block, { ...view, theme: settings.theme() })));
      controls.replaceChildren(...parts);
      if (!isLines) return;
      legend.replaceChildren(...legendOf(block).map((entry) => {
        const on = !view.hidden.has(entry.name);
        const element = button("", () => choose(() => (on ? view.hidden.add(entry.name) : view.hidden.delete(entry.name))), on);
        element.append(svg("svg", { width: 18, height: 10, class: "s" + entry.colour, "aria-hidden": "true" }, [keyLine(0, 5, entry.dash)]), html("span", { textContent: entry.name }));
        return element;
      }));
    }

    if (isLines) {
      plot.tabIndex = 0;
      plot.setAttribute("role", "group");
      plot.setAttribute("aria-label", `${block.title || "chart"}: the arrow keys read values`);
      const valueAt = (event) => {
        const box = plot.getBoundingClientRect();
        const place = ((event.clientX - box.left) / box.width) * drawn.root.viewBox.baseVal.width;
        return drawn.x.invert(Math.max(drawn.frame.left, Math.min(drawn.frame.right, place)));
      };
      // A pointer that is dragged selects the part to look at more closely.
      let from = null;
      const selection = svg("rect", { class: "select" });
      plot.addEventListener("pointermove", (event) => {
        readout.show(valueAt(event));
        told();
        if (from === null) return;
        const [a, b] = [drawn.x(from), drawn.x(valueAt(event))].sort((p, q) => p - q);
        for (const [key, value] of Object.entries({ x: a, width: b - a, y: drawn.frame.top, height: drawn.frame.bottom - drawn.frame.top })) selection.setAttribute(key, value);
        drawn.root.append(selection);
      });
      plot.addEventListener("pointerdown", (event) => {
        if (event.pointerType === "mouse" && event.button === 0) from = valueAt(event);
      });
      plot.addEventListener("pointerup", (event) => {
        const to = valueAt(event);
        if (from !== null && Math.abs(drawn.x(to) - drawn.x(from)) > 8) choose(() => (view.zoom = [from, to].sort((p, q) => p - q)));
        from = null;
        selection.remove();
      });
      plot.addEventListener("pointerleave", () => {
        from = null;
        selection.remove();
        readout.hide();
        told();
      });
      plot.addEventListener("dblclick", () => choose(() => (view.zoom = null)));
      plot.addEventListener("blur", () => {
        readout.hide();
        told();
      });
      plot.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
        if (step) readout.step(step);
        else if (event.key === "Escape") readout.hide();
        else return;
        told();
        event.preventDefault();
      });
    }

    const numbers = html("details", {}, [html("summary", { textContent: "numbers" })]);
    numbers.addEventListener("toggle", showNumbers);
    function showNumbers() {
      while (numbers.children.length > 1) numbers.lastChild.remove();
      if (numbers.open) numbers.append(tableElement(tableOf(block)));
    }
    const heading = html("div", { className: "head" }, [html("h3", { textContent: block.title || "" }), controls]);
    const element = html("figure", {}, [heading, legend, plot, block.note ? html("figcaption", { className: "note", textContent: block.note }) : null, numbers]);
    Object.assign(element, { redraw, update, read });
    showControls();
    let width = 0;
    new ResizeObserver(() => {
      if (plot.clientWidth === width) return;
      width = plot.clientWidth;
      redraw();
    }).observe(plot);
    return element;
  }

  return { figure, html, button, tableElement, standalone };
})();
