// One write as a picture: in every channel the readout moves towards its target, as far as the gate says.
const { html, tableElement } = ddlFigure;
const { svg, shortNumber, isNumber } = ddlCharts;

// r + beta (v - r): where the readout is after the write, for a direction of length 1.
export const written = (r, v, gate) => r + gate * (v - r);

const kHeight = 26;

function picture(readout, target, gate, width) {
  const ends = readout.map((r, d) => written(r, target[d], gate));
  const all = [...readout, ...target, ...ends];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const [left, right] = [30, width - 14];
  const x = (v) => left + ((v - low) / (high - low || 1)) * (right - left);
  const root = svg("svg", { class: "chart write", viewBox: `0 0 ${width} ${readout.length * kHeight + 22}`, width, height: readout.length * kHeight + 22,
    role: "img", "aria-label": "readout, target and what the write made of the readout, by channel" });
  readout.forEach((r, d) => {
    const y = d * kHeight + 14;
    const [a, b, c] = [x(r), x(ends[d]), x(target[d])];
    root.append(svg("text", { x: 0, y: y + 4 }, [String(d)]), svg("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
      svg("line", { class: "line s0", x1: a, x2: b, y1: y, y2: y }),
      svg("path", { class: "line s2", d: `M${c},${y - 8}V${y + 8}` }),
      svg("circle", { class: "from", cx: a, cy: y, r: 4.5 }), svg("circle", { class: "dot s0", cx: b, cy: y, r: 5 }));
  });
  const foot = readout.length * kHeight + 16;
  root.append(svg("text", { x: left, y: foot }, [shortNumber(low, 2)]), svg("text", { x: right, y: foot, "text-anchor": "end" }, [shortNumber(high, 2)]));
  return root;
}

const key = (className, name) => html("span", { className: "key-entry" }, [html("span", { className }), html("span", { textContent: name })]);

// write: as trace.js has it. Everything that is known of it.
export function writeElement(write, width) {
  const { gate, readout, target } = write;
  const facts = [gate === null ? null : `gate ${shortNumber(gate, 3)}`,
    write.before === null ? null : `discrepancy ${shortNumber(write.before, 3)} before, ${shortNumber(write.after, 3)} after the write`].filter(Boolean);
  const parts = [html("p", { className: "facts", textContent: facts.join(" · ") || "This rule reports nothing about its writes." })];
  if (isNumber(gate) && readout && target) {
    parts.push(html("div", {}, [picture(readout, target, gate, width),
      html("p", { className: "note keys" }, [key("mark from", "readout r"), key("mark to s0", "after the write"), key("mark aim s2", "target v")])]));
    const columns = ["channel", "readout r", "target v", "discrepancy v − r", "left (1 − β)(v − r)"].map((name, i) => ({ name, align: i ? "right" : "left", digits: 4 }));
    const rows = readout.map((r, d) => [String(d), r, target[d], target[d] - r, target[d] - written(r, target[d], gate)]);
    parts.push(tableElement({ kind: "table", columns, rows }));
  }
  const others = write.others.map(([name, values]) => [name, values.map((v) => shortNumber(v, 4)).join(", ")]);
  if (others.length)
    parts.push(tableElement({ kind: "table", columns: [{ name: "also", align: "left" }, { name: "value", align: "left" }], rows: others }));
  return html("div", { className: "write-parts" }, parts);
}
