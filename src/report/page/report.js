// The page of a report: reads the document that is part of the page and shows it block by block.
"use strict";

(() => {
  const { figure, html, button, tableElement } = ddlFigure;
  const root = document.documentElement;

  // The address may say how to look at it: report.html#axis=flops&theme=dark
  const wishes = new URLSearchParams(location.hash.slice(1));

  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  let chosen = ["light", "dark"].includes(wishes.get("theme")) ? wishes.get("theme") : null;
  const theme = () => (printing ? "light" : chosen || (darkSystem.matches ? "dark" : "light"));
  const figures = [];
  const themeButton = button("", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    showTheme();
  });
  themeButton.className = "theme";
  function showTheme() {
    root.dataset.theme = theme();
    themeButton.textContent = theme() === "dark" ? "light theme" : "dark theme";
    for (const element of figures) element.redraw();
  }
  darkSystem.addEventListener("change", showTheme);
  // Paper is white, and as wide whatever the window is.
  const kPaperWidth = 760;
  addEventListener("beforeprint", () => {
    printing = true;
    showTheme();
  });
  addEventListener("afterprint", () => {
    printing = false;
    showTheme();
  });

  const show = {
    text: (block) => html("p", { className: "text", textContent: block.text }),
    code: (block) => html("pre", { tabIndex: 0 }, [html("code", { textContent: block.text })]),
    list: (block) => html("ul", { className: block.tone === "warning" ? "items warning" : "items" }, block.items.map((item) => html("li", { textContent: item }))),
    table: tableElement,
    answers: (block) => html("ul", { className: "answers" }, block.rows.map((row) => html("li", {}, [
      html("div", { className: "question", textContent: row.question }),
      html("div", { className: "answer", textContent: row.answer }),
      row.detail ? html("div", { className: "detail", textContent: row.detail }) : null,
      html("span", { className: ["better", "worse", "equivalent"].includes(row.verdict) ? "verdict " + row.verdict : "verdict undecided", textContent: row.verdict }),
    ]))),
  };
  for (const kind of ["lines", "forest", "bars", "heat"])
    show[kind] = (block) => {
      const element = figure(block, { axis: wishes.get("axis"), theme, width: () => (printing ? kPaperWidth : 0) });
      figures.push(element);
      return element;
    };
  // One block that is wrong must not hide the others.
  function element(block) {
    try {
      if (!Object.hasOwn(show, block.kind)) throw new Error("this page does not know such a block");
      return show[block.kind](block);
    } catch (error) {
      return html("p", { className: "broken", textContent: `A block of kind "${block?.kind}" cannot be shown: ${error.message}` });
    }
  }

  const kHint = "On a chart of lines: drag to look at a part, double-click to see all of it, click a name to hide it. The arrow keys read values.";

  const report = JSON.parse(document.getElementById("document").textContent);
  root.dataset.theme = theme();
  const links = report.sections.map((section) => html("li", {}, [html("a", { href: "#" + encodeURIComponent(section.id), textContent: section.title })]));
  document.getElementById("report").append(
    html("header", {}, [
      html("h1", { textContent: report.title }),
      report.subtitle ? html("p", { className: "subtitle", textContent: report.subtitle }) : null,
      themeButton,
      links.length > 1 ? html("nav", { "aria-label": "sections" }, [html("ol", {}, links)]) : null,
    ]),
    ...report.sections.map((section) => html("section", { id: section.id }, [html("h2", { textContent: section.title }), ...section.blocks.map(element)])),
    html("footer", {}, [html("p", { className: "note", textContent: figures.length ? kHint : "" })]),
  );
  showTheme();
  document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
})();
