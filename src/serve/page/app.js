// The runs of the folder, as a table.
"use strict";

async function show() {
  const { runs } = await (await fetch("/api/runs")).json();
  const table = document.createElement("table");
  for (const run of runs) {
    const row = table.insertRow();
    for (const text of [run.name, run.status]) row.insertCell().textContent = text;
  }
  document.getElementById("runs").replaceChildren(table);
}

show();
