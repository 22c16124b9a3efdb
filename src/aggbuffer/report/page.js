// The page is complete without this: it adds the slider, sorting and copying.
const slider = document.querySelector(".slider"), steps = JSON.parse(document.getElementById("steps")?.textContent ?? "[]");
if (slider) {
  const input = slider.querySelector("input"), rows = document.querySelectorAll("#removal-table tbody tr");
  const show = () => {
    const at = Number(input.value), step = steps[at];
    for (const part of document.querySelectorAll("#readout [data-step]")) part.textContent = step[part.dataset.step];
    for (const line of document.querySelectorAll("svg .cursor")) {
      const x = line.dataset.xs.split(" ")[at];
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
    }
    rows.forEach((row, i) => row.classList.toggle("chosen", i === at));
    input.setAttribute("aria-valuetext", `${step.kept} of the edges kept`);
  };
  slider.hidden = false;
  input.addEventListener("input", show);
  show(); // a browser may have kept an earlier position
}

const keyOf = (cell) => {
  const text = cell.textContent.trim(), number = parseFloat(text.replaceAll(",", "").replace("\u2212", "-").replace("+", ""));
  return Number.isNaN(number) ? text : number;
};
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = (one, other) => {
        const a = keyOf(one.cells[column]), b = keyOf(other.cells[column]);
        return typeof a === typeof b ? (a > b) - (a < b) : typeof a === "number" ? 1 : -1; // words before numbers
      };
      const rows = [...body.rows].sort(compare);
      body.append(...(down ? rows.reverse() : rows));
    });
  });
}

for (const button of document.querySelectorAll("button.copy")) {
  const code = document.getElementById(button.dataset.copies);
  button.hidden = false;
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    let told = "Selected";
    try { await navigator.clipboard.writeText(code.textContent); told = "Copied"; } catch { /* the selection is there to copy by hand */ }
    button.textContent = told;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
