// Draws the charts of the page from the figures beside this script; without it the page has everything but them.
(() => {
  "use strict";
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const strokes = ["--forward", "--input", "--backward", "--checkpoint"];
  const drawn = [];

  function options(chart, width) {
    const axis = { stroke: color("--text"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    return {
      width,
      height: 220,
      scales: { x: { time: false } },
      axes: [{ ...axis, label: chart.x, labelSize: 20 }, { ...axis, size: 64 }],
      series: [
        { label: chart.x },
        ...chart.series.map((one, place) => ({
          label: chart.y ? `${one.label} (${chart.y})` : one.label,
          stroke: color(strokes[place % strokes.length]),
          width: one.width || 1.5,
          spanGaps: false,
        })),
      ],
    };
  }

  function draw(chart) {
    const figure = document.getElementById(chart.place);
    figure.classList.add("drawn");
    figure.querySelector("figcaption").textContent = chart.caption;
    const columns = [chart.xs, ...chart.series.map(one => one.values)];
    const plot = new uPlot(options(chart, figure.clientWidth), columns, figure);
    const canvas = plot.root.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", chart.caption);
    drawn.push({ chart, figure, plot });
  }

  const charts = JSON.parse(document.getElementById("charts").textContent);
  if (charts.some(one => one.place !== "chart-results")) document.getElementById("over-the-run").classList.add("drawn");
  charts.forEach(draw);

  const timeline = document.getElementById("timeline");
  let zoom = 1;

  // Makes the rows `factor` times as long; what is `at` so many pixels from the left stays there.
  function zoomBy(factor, at) {
    const before = zoom;
    const place = timeline.scrollLeft + at;
    zoom = factor ? Math.min(256, Math.max(1, zoom * factor)) : 1;
    timeline.style.setProperty("--zoom", zoom);
    timeline.scrollLeft = (place * zoom) / before - at;
  }

  if (timeline) {
    const buttons = document.querySelector(".zoom");
    buttons.hidden = false;
    buttons.addEventListener("click", event => {
      if (event.target.dataset.zoom) zoomBy(Number(event.target.dataset.zoom), timeline.clientWidth / 2);
    });
    timeline.addEventListener("wheel", event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoomBy(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - timeline.getBoundingClientRect().left);
    }, { passive: false });
  }

  function again() {
    for (const one of drawn.splice(0)) {
      one.plot.destroy();
      draw(one.chart);
    }
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", () => drawn.forEach(one => one.plot.setSize({ width: one.figure.clientWidth, height: 220 })));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
})();
