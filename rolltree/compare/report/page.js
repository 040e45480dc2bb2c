"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (mode) => { root.dataset.theme = mode; };
  paint(dark.matches ? "dark" : "light");

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }

  const source = document.getElementById("charts");
  const charts = source ? JSON.parse(source.textContent) : [];
  const ink = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const names = [...new Set(charts.flatMap((chart) => chart.series.map((s) => s.name)))];
  const colour = (name) => ink("--c" + (names.indexOf(name) % 8));
  const veil = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  function traces(chart) {
    const out = [];
    const form = chart.percent ? ".1%" : ".4~g";
    for (const s of chart.series) {
      const c = colour(s.name);
      const quiet = { legendgroup: s.name, showlegend: false, hoverinfo: "skip", mode: "lines", type: "scatter" };
      if (s.low.length) {
        out.push({ ...quiet, x: s.x, y: s.low, line: { width: 0, color: c } });
        out.push({ ...quiet, x: s.x, y: s.high, line: { width: 0, color: c }, fill: "tonexty", fillcolor: veil(c, 0.16) });
      }
      for (const run of s.runs) {
        out.push({ ...quiet, x: run.x, y: run.y, line: { width: 1, color: veil(c, 0.38) } });
      }
      out.push({
        type: "scatter", mode: s.x.length > 1 ? "lines" : "markers", name: s.name, legendgroup: s.name, x: s.x, y: s.y,
        line: { width: 2.6, color: c }, marker: { color: c, size: 8 },
        hovertemplate: `%{y:${form}}`,
      });
    }
    return out;
  }

  function limits(chart) {
    const seen = chart.series.flatMap((s) => [...s.y, ...s.runs.flatMap((r) => r.y)]).filter((v) => v !== null);
    if (chart.target !== null) seen.push(chart.target);
    if (!seen.length) return undefined;
    const span = (Math.max(...seen) - Math.min(...seen)) || Math.abs(seen[0]) || 1;
    // A band may widen the view, but an interval of few runs must not flatten the curves.
    const bottom = Math.min(...seen) - 0.5 * span, top = Math.max(...seen) + 0.5 * span;
    for (const v of chart.series.flatMap((s) => [...s.low, ...s.high])) if (v !== null) seen.push(Math.min(top, Math.max(bottom, v)));
    const low = Math.min(...seen), high = Math.max(...seen), room = 0.06 * span;
    return [chart.percent || low >= 0 ? Math.max(0, low - room) : low - room, chart.percent ? Math.min(1.01, high + room) : high + room];
  }

  function layout(chart, narrow) {
    const axis = { gridcolor: ink("--grid"), linecolor: ink("--line"), zeroline: false, automargin: true, tickfont: { size: 12 } };
    const line = chart.target === null ? [] : [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: chart.target, y1: chart.target,
      line: { color: ink("--soft"), width: 1.2, dash: "dot" },
    }];
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified", dragmode: narrow ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, color: ink("--ink"), size: 13 },
      margin: { l: 8, r: 10, t: 6, b: 8 }, shapes: line,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: ink("--soft"), activecolor: ink("--accent") },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 13 } },
      hoverlabel: { bgcolor: ink("--card"), bordercolor: ink("--line"), font: { color: ink("--ink") } },
      xaxis: { ...axis, title: { text: chart.x, font: { size: 12, color: ink("--soft") } }, nticks: narrow ? 4 : 8, hoverformat: ".3s" },
      yaxis: { ...axis, title: { text: chart.y, font: { size: 12, color: ink("--soft") } }, tickformat: chart.percent ? ".0%" : undefined, range: limits(chart), nticks: 7 },
    };
  }

  function draw() {
    charts.forEach((chart, i) => {
      const box = document.getElementById("plot" + i);
      Plotly.react(box, traces(chart), layout(chart, box.clientWidth < 520), {
        responsive: true, displaylogo: false, displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
        modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
        toImageButtonOptions: { format: "svg", filename: "rolltree" },
      });
    });
    for (const head of document.querySelectorAll("tbody th")) {
      if (!names.includes(head.textContent) || head.querySelector(".swatch")) continue;
      const dot = document.createElement("span");
      dot.className = "swatch";
      dot.style.background = `var(--c${names.indexOf(head.textContent) % 8})`;
      head.prepend(dot);
    }
  }

  async function unpack() {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  const redraw = () => { if (window.Plotly) draw(); };
  document.getElementById("theme").addEventListener("click", () => { paint(root.dataset.theme === "dark" ? "light" : "dark"); redraw(); });
  dark.addEventListener("change", () => { paint(dark.matches ? "dark" : "light"); redraw(); });
  if (charts.length) {
    unpack().then(draw).catch((error) => {
      for (const box of document.querySelectorAll(".plot")) {
        const p = document.createElement("p");
        p.className = "message";
        p.textContent = "This browser cannot draw the curves (" + error.message + "); the tables hold the numbers.";
        box.replaceChildren(p);
      }
    });
  }
})();
