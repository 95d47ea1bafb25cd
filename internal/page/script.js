"use strict";
// Pointer and slider move one cursor over a chart; its text is read out.
for (const figure of document.querySelectorAll("figure")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot"), line = figure.querySelector(".cursor");
  const slider = figure.querySelector("input"), output = figure.querySelector("output");
  const columns = data.at.length;
  if (data.text.length === 0) continue;
  slider.disabled = false;
  slider.max = data.text.length - 1;
  const text = (i) => (data.row ? data.row[Math.floor(i / columns)] + " · " + data.column[i % columns] + " · " : "") + data.text[i];
  const middle = (i) => data.cell ? Math.floor((data.cell.indexOf(i) + data.cell.lastIndexOf(i)) / 2) : i;
  const show = (i) => {
    line.style.display = "block";
    line.style.left = data.at[middle(i) % columns] + "%";
    slider.setAttribute("aria-valuetext", text(i));
    output.textContent = text(i);
  };
  slider.addEventListener("input", () => show(Number(slider.value)));
  slider.addEventListener("focus", () => show(Number(slider.value)));
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const x = 100 * (event.clientX - box.left) / box.width;
    let column = 0;
    data.at.forEach((at, i) => { if (Math.abs(at - x) < Math.abs(data.at[column] - x)) column = i; });
    const row = Math.min(data.rows - 1, Math.max(0, Math.floor(data.rows * (event.clientY - box.top) / box.height)));
    const cell = row * columns + column;
    slider.value = data.cell ? data.cell[cell] : cell;
    show(Number(slider.value));
  });
}
