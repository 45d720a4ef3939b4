export class PlaygroundView {
  constructor() { this.element = ddlFigure.html("p", { textContent: "soon" }); }
  close() {}
  redraw() {}
}
