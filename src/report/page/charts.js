// Charts as SVG elements: functions of a block of the document (docs/report.md) and of how it is looked at, nothing else.
// Whoever shows them (figure.js) adds controls. Text from the document only ever becomes the content of text nodes.
//
// Every chart says how it maps values to places, so that a test can read the values back from the picture:
// data-x="scale low high left right" and data-y="scale low high bottom top" on the root.
"use strict";

const ddlCharts = (() => {
  const kColours = 8;
  const kDashes = ["", "7 4", "2 4", "10 3 2 3"];

  const isNumber = (v) => typeof v === "number" && Number.isFinite(v);
  const place = (v) => String(Math.round(v * 100) / 100); // hundredths of a pixel

  function svg(name, attributes = {}, children = []) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    for (const child of children) if (child) element.append(child);
    return element;
  }
  function text(x, y, content, attributes = {}) {
    return svg("text", { x: place(x), y: place(y), ...attributes }, [content]);
  }
  const widthOf = (content, size = 12) => 0.57 * size * content.length; // near enough to leave room
  function fitted(content, width) {
    const most = Math.max(2, Math.floor(width / (0.57 * 12)));
    return content.length <= most ? content : content.slice(0, most - 1) + "…";
  }
  const withTitle = (element, content) => (element.append(svg("title", {}, [content])), element);

  // --- numbers

  const kMinus = "−";
  // Short, for axes and tables: 12.5, 0.0031, 614.4 k, 1.3 T. `digits` asks for that many after the point.
  function shortNumber(v, digits) {
    if (!isNumber(v)) return "–";
    const sign = v < 0 ? kMinus : "";
    const size = Math.abs(v);
    if (digits !== undefined && digits !== null) return sign + size.toFixed(digits);
    if (size === 0) return "0";
    for (const [unit, letter] of [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= 0.99995 * unit && size >= 9999.5) {
        if (size >= 1e22) break;
        return sign + String(Number((size / unit).toPrecision(4))) + " " + letter;
      }
    if (size >= 1e22 || size < 1e-4) return sign + size.toExponential(2).replace("e+", "e").replace("e-", "e" + kMinus);
    return sign + String(Number(size.toPrecision(5)));
  }
  const signed = (v, digits) => (isNumber(v) && v > 0 ? "+" : "") + shortNumber(v, digits);
  // Digits after the point that show differences of a hundredth of the range or less.
  const digitsFor = (range) => Math.min(8, Math.max(0, 2 - Math.floor(Math.log10(range || 1) + 1e-9)));

  // --- scales

  // Places for values. Values that have no place (log of 0) are left out by whoever draws.
  function makeScale(kind, low, high, from, to) {
    const log = kind === "log";
    const t = log ? Math.log10 : (v) => v;
    const a = t(low);
    const b = t(high);
    const scale = (v) => from + ((t(v) - a) / (b - a)) * (to - from);
    scale.invert = (p) => {
      const v = a + ((p - from) / (to - from)) * (b - a);
      return log ? 10 ** v : v;
    };
    scale.fits = (v) => isNumber(v) && (!log || v > 0);
    scale.ticks = (count) => (log ? logTicks(low, high, count) : linearTicks(low, high, count));
    scale.text = [kind, low, high, from, to].join(" ");
    return scale;
  }
  function linearTicks(low, high, count) {
    const rough = (high - low) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push(Number((i * step).toPrecision(12)));
    return ticks;
  }
  function logTicks(low, high, count) {
    const decades = Math.log10(high / low);
    if (decades < 0.7) return linearTicks(low, high, count).filter((v) => v > 0);
    const every = Math.max(1, Math.ceil(decades / count));
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e)
      for (const m of decades < 0.6 * count ? [1, 2, 5] : [1]) {
        const v = Number((m * 10 ** e).toPrecision(12));
        if (v >= low * 0.999999 && v <= high * 1.000001 && (m !== 1 || e % every === 0)) ticks.push(v);
      }
    return ticks;
  }
  // The range of values with a little room, of more than no width.
  function rangeOf(values, kind, room) {
    let low = Infinity;
    let high = -Infinity;
    for (const v of values)
      if (isNumber(v) && (kind !== "log" || v > 0)) {
        if (v < low) low = v;
        if (v > high) high = v;
      }
    if (low > high) return kind === "log" ? [1, 10] : [0, 1];
    if (kind === "log") {
      const pad = Math.max((high / low) ** room, low === high ? 1.1 : 1);
      return [low / pad, high * pad];
    }
    const pad = low === high ? Math.abs(low) * 0.05 || 1 : (high - low) * room;
    return [low - pad, high + pad];
  }

  function chartRoot(width, height, label, children) {
    return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${Math.ceil(height)}`, width, height: Math.ceil(height), role: "img",
      "aria-label": label }, children);
  }

  // The title and the legend inside the picture, for one that stands alone. Returns the height they take.
  function addHeading(root, block, width, entries) {
    let y = 22;
    root.append(text(0, y, fitted(block.title || "", width / 1.3), { class: "title" }));
    let x = 0;
    if (entries.length) y += 26;
    for (const entry of entries) {
      const w = 34 + widthOf(entry.name);
      if (x > 0 && x + w > width) [x, y] = [0, y + 18];
      root.append(svg("g", { class: "s" + entry.colour }, [keyLine(x, y - 4, entry.dash)]), text(x + 22, y, entry.name, { class: "strong" }));
      x += w;
    }
    return y + 18;
  }
  const keyLine = (x, y, dash) => svg("line", { class: "line", x1: x + 1, x2: x + 17, y1: y, y2: y, "stroke-dasharray": dash });

  // --- lines

  // Series of one group share a colour and an entry of the legend.
  function legendOf(block) {
    const entries = new Map();
    block.series.forEach((series, index) => {
      const name = series.group || series.name;
      if (!entries.has(name)) {
        const n = entries.size;
        entries.set(name, { name, colour: n % kColours, dash: kDashes[Math.floor(n / kColours) % kDashes.length], series: [] });
      }
      entries.get(name).series.push(index);
    });
    return [...entries.values()];
  }

  function linePath(xs, ys, x, y) {
    let d = "";
    let pen = false;
    const alone = [];
    const there = (i) => i >= 0 && i < ys.length && x.fits(xs[i]) && y.fits(ys[i]);
    for (let i = 0; i < ys.length; ++i) {
      if (!there(i)) {
        pen = false;
        continue;
      }
      if (!there(i - 1) && !there(i + 1)) alone.push(i);
      d += (pen ? "L" : "M") + place(x(xs[i])) + "," + place(y(ys[i]));
      pen = true;
    }
    return { d, alone };
  }
  function bandPath(xs, low, high, x, y) {
    let d = "";
    let from = 0;
    const there = (i) => x.fits(xs[i]) && y.fits(low[i]) && y.fits(high[i]);
    for (let i = 0; i <= xs.length; ++i) {
      if (i < xs.length && there(i)) continue;
      if (i - from > 1) {
        const forth = [];
        const back = [];
        for (let k = from; k < i; ++k) {
          forth.push(place(x(xs[k])) + "," + place(y(high[k])));
          back.unshift(place(x(xs[k])) + "," + place(y(low[k])));
        }
        d += "M" + forth.concat(back).join("L") + "Z";
      }
      from = i + 1;
    }
    return d;
  }

  // view: {width, axis: key, xScale and yScale where they are not the block's, hidden: Set of names in the legend, zoom: [low, high] of x or null, alone}
  // Returns {root, x, y, axis, frame, shown}: the picture, its scales, and the series in it.
  function drawLines(block, view) {
    const width = view.width;
    const axis = block.axes.find((a) => a.key === view.axis) || block.axes[0];
    const yScale = view.yScale || block.y.scale || "linear";
    const legend = legendOf(block);
    const shown = legend.filter((entry) => !view.hidden.has(entry.name));
    const all = shown.flatMap((entry) => entry.series.map((i) => ({ entry, index: i, series: block.series[i] })));
    const root = chartRoot(width, 10, block.title || "chart", []);
    const top = view.alone ? addHeading(root, block, width, shown) : 8;

    const xKind = view.xScale || axis.scale || "linear";
    const xs = all.flatMap(({ series }) => series.x[axis.key] || []);
    const points = all.some(({ series }) => series.style === "points");
    const [xLow, xHigh] = view.zoom || rangeOf(xs, xKind, points ? 0.03 : 0);
    const inside = (v) => isNumber(v) && v >= xLow && v <= xHigh;
    const ys = [];
    for (const { series } of all)
      (series.x[axis.key] || []).forEach((v, i) => {
        if (inside(v)) ys.push(series.y[i], series.lo?.[i], series.hi?.[i]);
      });
    const [yLow, yHigh] = rangeOf(ys, yScale, 0.05);

    const plotHeight = Math.round(Math.min(380, Math.max(220, width * 0.42)));
    const bottom = top + plotHeight;
    const yTicks = makeScale(yScale, yLow, yHigh, 0, 1).ticks(6);
    const left = Math.max(34, 14 + Math.max(0, ...yTicks.map((v) => widthOf(shortNumber(v)))));
    const right = width - 14;
    const x = makeScale(xKind, xLow, xHigh, left, right);
    const y = makeScale(yScale, yLow, yHigh, bottom, top + 14);
    root.setAttribute("data-x", x.text);
    root.setAttribute("data-y", y.text);
    root.setAttribute("data-axis", axis.key);

    for (const v of yTicks)
      root.append(svg("line", { class: "grid", x1: left, x2: right, y1: place(y(v)), y2: place(y(v)) }),
        text(left - 8, y(v) + 4, shortNumber(v), { "text-anchor": "end", "data-tick-y": v }));
    const whole = xs.every((v) => !isNumber(v) || Number.isInteger(v)); // counts have no halves
    let free = -Infinity; // where the next label may begin
    for (const v of x.ticks(Math.max(2, Math.floor((right - left) / 90)))) {
      const half = widthOf(shortNumber(v)) / 2;
      if ((whole && !Number.isInteger(v)) || x(v) - half < free) continue;
      free = x(v) + half + 10;
      root.append(svg("line", { class: "axis", x1: place(x(v)), x2: place(x(v)), y1: bottom, y2: bottom + 4 }),
        text(x(v), bottom + 18, shortNumber(v), { "text-anchor": x(v) > right - 16 ? "end" : "middle", "data-tick-x": v }));
    }
    root.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    root.append(text(left, top + 4, block.y.label + (yScale === "log" ? " (log)" : "")));
    root.append(text(right, bottom + 36, axis.label + (xKind === "log" ? " (log)" : ""), { "text-anchor": "end" }));

    // What lies outside a zoomed range is cut off by an inner picture with the same coordinates.
    const inner = svg("svg", { x: left - 4, y: top, width: right - left + 8, height: plotHeight,
      viewBox: `${left - 4} ${top} ${right - left + 8} ${plotHeight}` });
    const bands = svg("g");
    const lines = svg("g");
    for (const { entry, index, series } of all) {
      const at = series.x[axis.key];
      if (!at) continue;
      const colour = "s" + entry.colour;
      if (series.lo && series.hi) {
        const d = bandPath(at, series.lo, series.hi, x, y);
        if (d) bands.append(svg("path", { class: "band " + colour, "data-band": index, d }));
      }
      const { d, alone } = linePath(at, series.y, x, y);
      const few = series.y.length <= 30 && series.style !== "faint";
      if (series.style !== "points" && d)
        lines.append(svg("path", { class: (series.style === "faint" ? "line faint " : "line ") + colour, "data-series": index, d,
          "stroke-dasharray": series.style === "dashed" ? "5 4" : entry.dash }));
      const dots = series.style === "points" || few ? series.y.keys() : alone;
      for (const i of dots)
        if (x.fits(at[i]) && y.fits(series.y[i]))
          lines.append(svg("circle", { class: "dot " + colour, "data-point": index, cx: place(x(at[i])), cy: place(y(series.y[i])),
            r: series.style === "points" ? 3.5 : 2.5 }));
    }
    inner.append(bands, lines);
    root.append(inner);
    setHeight(root, width, bottom + 44);
    return { root, x, y, axis, shown: all, frame: { left, right, top: top + 14, bottom } };
  }
  function setHeight(root, width, height) {
    root.setAttribute("viewBox", `0 0 ${width} ${Math.ceil(height)}`);
    root.setAttribute("height", Math.ceil(height));
  }

  // --- rows with a value: forest plots and bars

  const kVerdicts = { better: "better", worse: "worse", equivalent: "equivalent", undecided: "undecided" };

  // Names to the left of the plot and words to its right; on a narrow screen both above it.
  function rowLayout(width, names, words) {
    const nameWidth = Math.min(width * 0.45, 12 + Math.max(0, ...names.map((n) => widthOf(n))));
    const wordWidth = 16 + Math.max(0, ...words.map((w) => widthOf(w)));
    const narrow = width - nameWidth - wordWidth < 220;
    return narrow ? { narrow, left: 10, right: width - 10, rowHeight: 48, nameWidth: width - wordWidth }
                  : { narrow, left: nameWidth + 8, right: width - wordWidth - 4, rowHeight: 30, nameWidth };
  }
  function addRowWords(root, layout, width, row, words, top, index) {
    const middle = layout.narrow ? top + 34 : top + layout.rowHeight / 2;
    const baseline = layout.narrow ? top + 16 : middle + 4;
    root.append(withTitle(text(0, baseline, fitted(row.name, layout.nameWidth), { class: "strong", "data-row": index }), row.name),
      text(width, baseline, words, { "text-anchor": "end" }));
    return middle;
  }
  function addValueAxis(root, x, top, bottom, count, label, right) {
    for (const v of x.ticks(count))
      root.append(svg("line", { class: "grid", x1: place(x(v)), x2: place(x(v)), y1: top, y2: bottom }),
        text(x(v), bottom + 18, shortNumber(v), { "text-anchor": "middle", "data-tick-x": v }));
    root.append(svg("line", { class: "axis", x1: x.left, x2: x.right, y1: bottom, y2: bottom }));
    root.append(text(right, bottom + 36, label || "", { "text-anchor": "end" }));
  }

  function drawForest(block, view) {
    const width = view.width;
    const rows = block.rows;
    const values = rows.flatMap((r) => [r.mean, r.lo, r.hi, ...(r.points || [])]);
    const [low, high] = rangeOf([...values, 0, block.margin, isNumber(block.margin) ? -block.margin : null], "linear", 0.06);
    const digits = digitsFor(high - low);
    const words = rows.map((r) => {
      const interval = isNumber(r.lo) && isNumber(r.hi) ? ` [${signed(r.lo, digits)}, ${signed(r.hi, digits)}]` : "";
      return signed(r.mean, digits) + interval + (r.verdict ? "  " + r.verdict : "");
    });
    const layout = rowLayout(width, rows.map((r) => r.name), words);
    const root = chartRoot(width, 10, block.title || "forest plot", []);
    const top = view.alone ? addHeading(root, block, width, []) : 6;
    const bottom = top + rows.length * layout.rowHeight + 6;
    const x = makeScale("linear", low, high, layout.left, layout.right);
    [x.left, x.right] = [layout.left, layout.right];
    root.setAttribute("data-x", x.text);
    if (isNumber(block.margin) && block.margin > 0)
      root.append(svg("rect", { class: "margin", x: place(x(-block.margin)), width: place(x(block.margin) - x(-block.margin)),
        y: top, height: bottom - top }));
    addValueAxis(root, x, top, bottom, Math.max(2, Math.floor((layout.right - layout.left) / 80)), block.unit, width);
    root.append(svg("line", { class: "zero", x1: place(x(0)), x2: place(x(0)), y1: top, y2: bottom }));
    rows.forEach((row, index) => {
      const middle = addRowWords(root, layout, width, row, words[index], top + index * layout.rowHeight, index);
      const group = svg("g", { class: kVerdicts[row.verdict] || "s0" });
      for (const v of row.points || [])
        if (isNumber(v)) group.append(svg("circle", { class: "pair", "data-pair": index, cx: place(x(v)), cy: middle, r: 3.5 }));
      if (isNumber(row.lo) && isNumber(row.hi))
        group.append(svg("line", { class: "interval", "data-interval": index, x1: place(x(row.lo)), x2: place(x(row.hi)), y1: middle, y2: middle }));
      if (isNumber(row.mean))
        group.append(svg("circle", { class: "dot", "data-mean": index, cx: place(x(row.mean)), cy: middle, r: 5 }));
      root.append(group);
    });
    setHeight(root, width, bottom + (block.unit ? 44 : 26));
    return { root };
  }

  function drawBars(block, view) {
    const width = view.width;
    const rows = block.rows;
    const [low, high] = rangeOf([0, ...rows.flatMap((r) => [r.value, r.lo, r.hi])], "linear", 0);
    const words = rows.map((r) => shortNumber(r.value));
    const layout = rowLayout(width, rows.map((r) => r.name), words);
    const root = chartRoot(width, 10, block.title || "bars", []);
    const top = view.alone ? addHeading(root, block, width, []) : 6;
    const bottom = top + rows.length * layout.rowHeight + 6;
    const x = makeScale("linear", low, high, layout.left, layout.right);
    [x.left, x.right] = [layout.left, layout.right];
    root.setAttribute("data-x", x.text);
    addValueAxis(root, x, top, bottom, Math.max(2, Math.floor((layout.right - layout.left) / 80)), block.unit, width);
    rows.forEach((row, index) => {
      const middle = addRowWords(root, layout, width, row, words[index], top + index * layout.rowHeight, index);
      if (isNumber(row.value)) {
        const [from, to] = [x(0), x(row.value)].sort((a, b) => a - b);
        root.append(svg("rect", { class: "bar s0", "data-bar": index, "data-end": place(x(row.value)), x: place(from), width: place(to - from),
          y: middle - 8, height: 16 }));
      }
      if (isNumber(row.lo) && isNumber(row.hi)) {
        const [a, b] = [place(x(row.lo)), place(x(row.hi))];
        root.append(svg("path", { class: "whisker", "data-whisker": index,
          d: `M${a},${middle}L${b},${middle}M${a},${middle - 4}L${a},${middle + 4}M${b},${middle - 4}L${b},${middle + 4}` }));
      }
    });
    root.append(svg("line", { class: "zero", x1: place(x(0)), x2: place(x(0)), y1: top, y2: bottom }));
    setHeight(root, width, bottom + (block.unit ? 44 : 26));
    return { root };
  }

  // --- heat maps

  const kHeat = {
    light: { below: [11, 98, 168], middle: [246, 246, 244], above: [194, 80, 10], low: [240, 245, 250], high: [6, 66, 122] },
    dark: { below: [92, 172, 240], middle: [31, 36, 42], above: [240, 132, 62], low: [24, 32, 41], high: [140, 203, 255] },
  };
  const mix = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
  const rgb = (c) => `rgb(${c.join(",")})`;

  // From a value to a colour. With a centre: two colours that meet there, equally far on both sides. Otherwise one
  // colour that deepens.
  function heatColours(block, theme) {
    const palette = kHeat[theme === "dark" ? "dark" : "light"];
    const values = block.values.flat().filter(isNumber);
    let [low, high] = block.range || (values.length ? [Math.min(...values), Math.max(...values)] : [0, 1]);
    const centred = isNumber(block.centre);
    if (centred) {
      const reach = Math.max(high - block.centre, block.centre - low, 1e-30);
      [low, high] = [block.centre - reach, block.centre + reach];
    } else if (low === high) {
      [low, high] = [low - 0.5, high + 0.5];
    }
    const colour = (v) => {
      const t = Math.max(0, Math.min(1, (v - low) / (high - low)));
      if (!centred) return mix(palette.low, palette.high, t);
      return t < 0.5 ? mix(palette.middle, palette.below, 1 - 2 * t) : mix(palette.middle, palette.above, 2 * t - 1);
    };
    return { low, high, colour };
  }
  const isDark = (c) => 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] < 140;

  function drawHeat(block, view) {
    const width = view.width;
    const { low, high, colour } = heatColours(block, view.theme);
    const root = chartRoot(width, 10, block.title || "heat map", []);
    let top = view.alone ? addHeading(root, block, width, []) : 4;
    const left = Math.min(width * 0.3, 10 + Math.max(0, ...block.rows.map((n) => widthOf(n))));
    const cellWidth = Math.min(90, (width - left) / Math.max(1, block.columns.length));
    const cellHeight = Math.min(30, Math.max(16, cellWidth));
    const longest = Math.max(0, ...block.columns.map((n) => widthOf(n)));
    // Column names: side by side where they fit; numbers with gaps between them; words upright.
    const numeric = block.columns.every((n) => /^[-+−]?[0-9.,]+ ?[kMGT]?$/.test(n));
    const upright = longest + 6 > cellWidth && !numeric;
    const every = numeric ? Math.max(1, Math.ceil((longest + 8) / cellWidth)) : 1;
    const nameHeight = upright ? Math.min(110, longest) + 6 : 18;
    top += nameHeight;
    block.columns.forEach((name, c) => {
      if (c % every) return;
      const middle = left + (c + 0.5) * cellWidth;
      const label = upright
        ? text(middle + 4, top - 6, fitted(name, 110), { transform: `rotate(-90 ${place(middle + 4)} ${place(top - 6)})` })
        : middle + widthOf(name) / 2 > width
          ? text(width, top - 6, name, { "text-anchor": "end" })
          : text(middle, top - 6, name, { "text-anchor": "middle" });
      root.append(withTitle(label, name));
    });
    // The same number of digits in every cell, so that columns can be compared.
    const digits = Math.min(3, digitsFor(high - low) + 1);
    const fits = cellWidth > Math.max(widthOf(shortNumber(low, digits), 11), widthOf(shortNumber(high, digits), 11)) + 4;
    block.rows.forEach((name, r) => {
      const y = top + r * cellHeight;
      root.append(withTitle(text(left - 8, y + cellHeight / 2 + 4, fitted(name, left - 6), { class: "strong", "text-anchor": "end" }), name));
      (block.values[r] || []).forEach((v, c) => {
        if (c >= block.columns.length) return;
        const x = left + c * cellWidth;
        const box = { x: place(x), y: place(y), width: place(cellWidth), height: place(cellHeight), "data-cell": `${r} ${c}` };
        const told = `${name}, ${block.columns[c]}: ${isNumber(v) ? String(v) : "no value"}`;
        if (!isNumber(v)) {
          root.append(withTitle(svg("rect", { ...box, class: "missing" }), told));
          return;
        }
        const fill = colour(v);
        root.append(withTitle(svg("rect", { ...box, class: "cell", fill: rgb(fill) }), told));
        if (fits)
          root.append(svg("text", { x: place(x + cellWidth / 2), y: place(y + cellHeight / 2 + 4), "text-anchor": "middle", "font-size": 11,
            "pointer-events": "none", class: isDark(fill) ? "on-dark" : "on-light" }, [shortNumber(v, digits)]));
      });
    });
    const bottom = top + block.rows.length * cellHeight;
    const kSteps = 48;
    const barWidth = Math.min(200, width - left);
    for (let i = 0; i < kSteps; ++i)
      root.append(svg("rect", { x: place(left + (i * barWidth) / kSteps), y: bottom + 14, width: place(barWidth / kSteps + 0.5), height: 8,
        fill: rgb(colour(low + ((i + 0.5) / kSteps) * (high - low))) }));
    root.append(text(left, bottom + 38, shortNumber(low, digits)),
      text(left + barWidth, bottom + 38, shortNumber(high, digits), { "text-anchor": "end" }));
    if (isNumber(block.centre)) root.append(text(left + barWidth / 2, bottom + 38, shortNumber(block.centre, digits), { "text-anchor": "middle" }));
    if (block.unit) root.append(text(left + barWidth + 12, bottom + 22, block.unit));
    setHeight(root, width, bottom + 46);
    return { root };
  }

  // --- the numbers of a chart as a table block

  function tableOf(block) {
    const left = (name) => ({ name, align: "left" });
    const right = (name) => ({ name, align: "right" });
    if (block.kind === "lines") {
      const bands = block.series.some((s) => s.lo && s.hi);
      const columns = [left("series"), ...block.axes.map((a) => right(a.label)), right(block.y.label), ...(bands ? [right("low"), right("high")] : [])];
      const rows = block.series.flatMap((s) => s.y.map((v, i) => [s.name, ...block.axes.map((a) => s.x[a.key]?.[i] ?? null), v,
        ...(bands ? [s.lo?.[i] ?? null, s.hi?.[i] ?? null] : [])]));
      return { kind: "table", columns, rows };
    }
    if (block.kind === "forest")
      return { kind: "table", columns: [left("name"), right("mean"), right("low"), right("high"), left("verdict"), left("points")],
        rows: block.rows.map((r) => [r.name, r.mean, r.lo ?? null, r.hi ?? null, r.verdict || "", (r.points || []).join(", ")]) };
    if (block.kind === "bars")
      return { kind: "table", columns: [left("name"), right("value"), right("low"), right("high")],
        rows: block.rows.map((r) => [r.name, r.value, r.lo ?? null, r.hi ?? null]) };
    return { kind: "table", columns: [left(""), ...block.columns.map(right)], rows: block.rows.map((name, r) => [name, ...(block.values[r] || [])]) };
  }

  const draw = { lines: drawLines, forest: drawForest, bars: drawBars, heat: drawHeat };
  return { draw, legendOf, keyLine, tableOf, shortNumber, isNumber, svg };
})();
