// Curves over time: phases shaded, the request as a line, zoom and hover.

const HEIGHT = 170;
const PAPER = 680; // CSS pixels across a printed page
const LANE = 17;
const COLOURS = 6;
const OFF_SCALE = 4; // a request above this many peaks is written, not drawn
const ROOM = 1.18; // above the line of a request, for its words
const SIZE_STEPS = Array.from({ length: 56 }, (_, power) => 2 ** power);
const TIME_STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000,
];

const root = document.documentElement;

function colour(name) {
  return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
}

class Run {
  constructor(host, data, number) {
    this.host = host;
    this.data = data;
    this.number = number;
    this.plots = [];
    this.moving = false;
    const help = element("p", { className: "tools quiet", textContent: "Drag to zoom, double-click for all." });
    host.append(help, ...data.charts.map((chart, index) => this.figure(chart, index)));
    new ResizeObserver(() => this.fit()).observe(host);
  }

  get width() {
    return Math.max(240, Math.floor(this.host.clientWidth));
  }

  figure(chart, index) {
    const readout = element("span", { className: "readout" });
    const plot = element("div", { className: "plot" });
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${chart.name} over time: ${summary(chart, this.data.t)}.`);
    const caption = element("figcaption", {}, element("span", { textContent: chart.name }), readout);
    const figure = element("figure", { className: "chart" }, caption, plot);
    this.plots.push({ chart, plot, readout, index, drawn: null });
    requestAnimationFrame(() => this.draw(index));
    return figure;
  }

  draw(index) {
    const one = this.plots[index];
    one.drawn = new uPlot(this.options(one), [this.data.t, one.chart.values], one.plot);
    this.read(one, null);
  }

  options(one) {
    const { chart, index } = one;
    const isSize = chart.kind === "bytes";
    const lanes = index === 0 ? this.lanes() : 0;
    const axis = {
      stroke: () => colour("quiet"),
      grid: { stroke: () => colour("rule"), width: 1 },
      ticks: { show: false },
      font: "11.5px system-ui, sans-serif",
    };
    return {
      width: this.width,
      height: HEIGHT + lanes,
      padding: [lanes + 8, 12, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        sync: { key: `run-${this.number}`, setSeries: false },
        drag: { x: true, y: false, setScale: true },
        points: { size: 8, fill: () => colour(chart.tone), stroke: () => colour("card"), width: 2 },
      },
      scales: { x: { time: false }, y: { range: () => [0, ceiling(chart)] } },
      axes: [
        { ...axis, incrs: TIME_STEPS, space: 70, size: 28, gap: 4, values: (_, ticks) => ticks.map(axisTime) },
        {
          ...axis, size: 72, gap: 6, space: 32,
          ...(isSize ? { incrs: SIZE_STEPS } : {}),
          values: (_, ticks) => ticks.map((tick) => (isSize ? axisSize(tick) : cpuWords(tick))),
        },
      ],
      series: [{}, { stroke: () => colour(chart.tone), width: 1.75, spanGaps: false, points: { show: false }, fill: () => faint(chart.tone) }],
      hooks: {
        drawClear: [(plot) => this.shade(plot, lanes)],
        draw: [(plot) => this.overlay(plot, chart, index)],
        setCursor: [(plot) => this.read(one, plot.cursor.idx)],
        setScale: [(plot, scale) => scale === "x" && this.follow(plot)],
      },
    };
  }

  lanes() {
    if (!this.data.phases.length) return 0;
    return (1 + Math.max(...this.data.phases.map((phase) => phase.depth))) * LANE + 3;
  }

  // Bands through the plot for the outermost phases, a lane a depth above it.
  shade(plot, lanes) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - lanes * ratio, bbox.width, bbox.height + lanes * ratio);
    ctx.clip();
    this.data.phases.forEach((phase, number) => {
      const left = plot.valToPos(phase.start, "x", true);
      const width = Math.max(1, plot.valToPos(phase.end, "x", true) - left - ratio);
      ctx.fillStyle = colour(`phase-${number % COLOURS}`);
      if (phase.depth === 0) {
        ctx.globalAlpha = 0.07;
        ctx.fillRect(left, bbox.top, width, bbox.height);
      }
      if (lanes) this.lane(plot, phase, { left, width, top: bbox.top - (lanes - phase.depth * LANE) * ratio });
    });
    ctx.restore();
  }

  lane(plot, phase, { left, width, top }) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const height = (LANE - 2) * ratio;
    ctx.globalAlpha = 0.22;
    ctx.fillRect(left, top, width, height);
    ctx.globalAlpha = 1;
    const start = Math.max(left, bbox.left);
    const room = Math.min(left + width, bbox.left + bbox.width) - start - 8 * ratio;
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    const words = phase.calls > 1 ? `${phase.name} \u00d7${phase.calls}` : phase.name;
    const fitting = shortened(ctx, words, room);
    if (!fitting) return;
    ctx.fillStyle = colour("ink");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(fitting, start + 4 * ratio, top + height / 2);
  }

  // The request, and events as ticks on the ground.
  overlay(plot, chart, index) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - ratio, bbox.width, bbox.height + 2 * ratio);
    ctx.clip();
    if (index === 0) this.marks(plot);
    for (const level of chart.levels) {
      const beyond = level.value > ceiling(chart);
      const y = beyond ? bbox.top + ratio : plot.valToPos(level.value, "y", true);
      const words = `${level.words} ${write(level.value, chart.kind)}`;
      ctx.strokeStyle = ctx.fillStyle = colour("requested");
      ctx.lineWidth = 1.5 * ratio;
      ctx.setLineDash([5 * ratio, 4 * ratio]);
      if (!beyond) {
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
      }
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "right";
      ctx.textBaseline = beyond ? "top" : "bottom";
      ctx.fillText(beyond ? `\u2191 ${words}, far above` : words, bbox.left + bbox.width - 4 * ratio, y + (beyond ? 2 : -2) * ratio);
    }
    ctx.restore();
  }

  marks(plot) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.fillStyle = colour("quiet");
    for (const mark of this.data.marks) {
      const x = plot.valToPos(mark.t, "x", true);
      ctx.fillRect(x - ratio / 2, bbox.top + bbox.height - 7 * ratio, ratio, 7 * ratio);
    }
  }

  read(one, at) {
    const { chart, readout } = one;
    if (at === null || at === undefined) {
      readout.textContent = summary(chart, this.data.t);
      return;
    }
    readout.textContent = `${write(chart.values[at], chart.kind)} at ${timeWords(this.data.t[at])}${this.where(this.data.t[at])}`;
  }

  // The innermost phase at a moment, and the last event before it.
  where(t) {
    const inside = this.data.phases.filter((phase) => phase.start <= t && t <= phase.end);
    const deepest = inside.reduce((best, phase) => (best && best.depth >= phase.depth ? best : phase), null);
    const before = this.data.marks.filter((mark) => mark.t <= t).pop();
    return `${deepest ? ` \u00b7 ${deepest.name}` : ""}${before ? ` \u00b7 ${before.words}` : ""}`;
  }

  // A zoom of one chart is a zoom of all of this run.
  follow(plot) {
    if (this.moving) return;
    this.moving = true;
    const { min, max } = plot.scales.x;
    for (const { drawn } of this.plots) {
      if (drawn && drawn !== plot && (drawn.scales.x.min !== min || drawn.scales.x.max !== max)) {
        drawn.setScale("x", { min, max });
      }
    }
    this.moving = false;
  }

  fit(width = this.width) {
    for (const { drawn } of this.plots) {
      if (drawn && drawn.width !== width) drawn.setSize({ width, height: drawn.height });
    }
  }

  redraw() {
    for (const { drawn } of this.plots) if (drawn) drawn.redraw(false, true);
  }
}

function peakOf(values) {
  let peak = 0;
  for (const value of values) if (value > peak) peak = value;
  return peak;
}

function ceiling(chart) {
  const peak = peakOf(chart.values) || 1;
  const near = chart.levels.map((level) => level.value).map((value) => (value <= OFF_SCALE * peak ? value : peak));
  return Math.max(1.08 * peak, ...near.map((value) => ROOM * value));
}

function summary(chart, times) {
  const drawn = peakOf(chart.values);
  const peak = Math.max(drawn, chart.peak ?? 0);
  const at = times[chart.values.indexOf(drawn)] ?? 0;
  const when = write(peak, chart.kind) === write(drawn, chart.kind) ? `at ${timeWords(at)}` : "between two samples";
  const levels = chart.levels.map((level) => `, ${level.words} ${write(level.value, chart.kind)}`);
  return `peak ${write(peak, chart.kind)} ${when}${levels.join("")}`;
}

function faint(tone) {
  return `${colour(tone)}1f`;
}

function shortened(ctx, words, room) {
  if (ctx.measureText(words).width <= room) return words;
  const letters = Array.from(words);
  while (letters.length && ctx.measureText(`${letters.join("")}\u2026`).width > room) letters.pop();
  return letters.length > 1 ? `${letters.join("")}\u2026` : "";
}

const runs = Array.from(document.querySelectorAll(".charts"), (host) => {
  const number = Number(host.dataset.run);
  return new Run(host, DATA.runs[number], number);
});
const redraw = () => runs.forEach((run) => run.redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

addEventListener("beforeprint", () => {
  root.dataset.theme = "light";
  runs.forEach((run) => { run.redraw(); run.fit(PAPER); });
});
addEventListener("afterprint", () => {
  delete root.dataset.theme;
  runs.forEach((run) => { run.redraw(); run.fit(); });
});
