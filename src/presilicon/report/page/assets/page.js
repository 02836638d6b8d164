"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.querySelector(".canvas");
  const legend = document.querySelector(".legend");
  const ACCURACY = 1;
  const view = { axis: 1, log: 0, zoom: 0, hidden: new Set() };
  if (!data.designs.some((design) => design.median.length)) {
    document.querySelector(".chart").hidden = true;
    return;
  }

  const SVG = "http://www.w3.org/2000/svg";
  function node(parent, name, attributes = {}, text = "") {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  }
  const color = (design) => `var(--c${design.color})`;
  const trim = (value, digits) => String(Number(value.toPrecision(digits)));
  const shownValue = (value) => (data.fraction ? `${trim(100 * value, 4)}%` : trim(value, 4));

  /** The largest unit in which a value is at least one. */
  function unitOf(value, scales) {
    const fitting = scales.filter(([factor]) => Math.abs(value) / factor >= 0.9995);
    return fitting.length ? fitting[fitting.length - 1] : value ? scales[0] : [1, ""];
  }
  function quantity(value, scales) {
    const [factor, unit] = unitOf(value, scales);
    return `${trim(value / factor, 3)} ${unit}`.trim();
  }

  /** Round numbers between two ends, about `count` of them. */
  function linearTicks(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
    const ticks = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) ticks.push(Number((at * step).toPrecision(10)));
    return ticks;
  }
  function logTicks(low, high) {
    const several = high / low < 40 ? [1, 2, 3, 5, 7] : high / low < 1000 ? [1, 2, 5] : [1];
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const each of several) {
        const tick = Number(`${each}e${power}`);
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    }
    return ticks;
  }

  function shown() {
    return data.designs.filter((_, index) => !view.hidden.has(index));
  }
  function points(design) {
    return [design.median, ...design.seeds.map((seed) => seed.points)].flat();
  }
  /** Ranges and the mapping from numbers to pixels. */
  function layout(width) {
    const axis = data.axes[view.axis];
    const height = Math.max(280, Math.min(440, width * 0.46));
    const box = { left: 46, right: width - 58, top: 30, bottom: height - 46 };
    const all = (shown().length ? shown() : data.designs).flatMap(points);
    const xs = all.map((point) => point[axis.index]);
    const positive = xs.filter((x) => x > 0);
    const high = Math.max(...xs) || 1;
    const low = view.log ? Math.min(...positive) : 0;
    const { floor, ceiling } = range(all.map((point) => point[ACCURACY]));
    const map = view.log
      ? (x) => box.left + (Math.log(Math.max(x, low) / low) / Math.log(high / low || Math.E)) * (box.right - box.left)
      : (x) => box.left + (x / high) * (box.right - box.left);
    const back = view.log
      ? (px) => low * (high / low) ** ((px - box.left) / (box.right - box.left))
      : (px) => ((px - box.left) / (box.right - box.left)) * high;
    const y = (value) => box.bottom - ((value - floor) / (ceiling - floor)) * (box.bottom - box.top);
    return { axis, width, height, box, low, high, floor, ceiling, x: map, back, y };
  }
  /** The values of the metric at the bottom and the top of the chart. */
  function range(values) {
    const targets = data.targets;
    const [lowest, highest] = [Math.min(...values, ...targets), Math.max(...values, ...targets)];
    if (data.fraction && data.rising) {
      const near = Math.max(0, targets[0] - Math.max(0.03, 4 * (1 - targets[0])));
      return { floor: view.zoom ? near : Math.floor(10 * lowest + 1e-9) / 10, ceiling: 1 };
    }
    const target = targets[data.rising ? 0 : targets.length - 1];
    const margin = 4 * Math.max(data.rising ? highest - target : target - lowest, 0.05 * Math.abs(target), 1e-9);
    const floor = view.zoom && data.rising ? Math.max(lowest, target - margin) : lowest;
    const ceiling = view.zoom && !data.rising ? Math.min(highest, target + margin) : highest;
    return { floor, ceiling: ceiling > floor ? ceiling : floor + 1 };
  }

  let frame = null;
  function draw() {
    const width = Math.max(300, Math.round(canvas.clientWidth));
    frame = layout(width);
    const { axis, box, height } = frame;
    canvas.querySelector("svg")?.remove();
    const names = shown().map((design) => design.name).join(", ");
    const svg = node(canvas, "svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
      "aria-label": `Validation ${data.metric} against ${axis.label} of ${names}. The same numbers are in the table below.`,
    });
    const clip = node(node(svg, "defs"), "clipPath", { id: "plot" });
    node(clip, "rect", { x: box.left, y: box.top - 3, width: box.right - box.left + 4, height: box.bottom - box.top + 4 });
    drawAxes(svg);
    for (const design of shown()) drawDesign(svg, design);
    node(svg, "line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
    svg.addEventListener("pointermove", (event) => point(event.clientX - svg.getBoundingClientRect().left));
    svg.addEventListener("pointerleave", unpoint);
    svg.addEventListener("blur", unpoint);
    svg.addEventListener("keydown", step);
  }

  function drawAxes(svg) {
    const { axis, box, low, high, floor, ceiling, x, y } = frame;
    for (const tick of linearTicks(floor, ceiling, 5)) {
      node(svg, "line", { class: "grid", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) });
      node(svg, "text", { x: box.left - 9, y: y(tick) + 4, "text-anchor": "end" }, shownValue(tick));
    }
    const [factor, unit] = unitOf(high, axis.scales);
    const count = Math.max(3, Math.floor((box.right - box.left) / 110));
    const ticks = view.log ? logTicks(low, high) : linearTicks(0, high / factor, count).map((tick) => tick * factor);
    let last = -Infinity;
    for (const tick of ticks) {
      const at = x(tick);
      node(svg, "line", { class: "axis", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 5 });
      if (at - last < 46) continue;
      last = at;
      node(svg, "text", { x: at, y: box.bottom + 20, "text-anchor": "middle" }, view.log ? quantity(tick, axis.scales) : trim(tick / factor, 4));
    }
    node(svg, "line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
    const suffix = unit && !view.log ? `, ${unit}` : "";
    node(svg, "text", { x: box.right, y: box.bottom + 40, "text-anchor": "end" }, axis.label + suffix);
    node(svg, "text", { x: 0, y: 11, "text-anchor": "start" }, `validation ${data.metric}`);
    for (const target of data.targets) {
      node(svg, "line", { class: "target", x1: box.left, x2: box.right + 8, y1: y(target), y2: y(target) });
      node(svg, "text", { class: "target-label", x: box.right + 13, y: y(target) + 4 }, "target");
      node(svg, "text", { class: "target-label", x: box.right + 13, y: y(target) + 19 }, shownValue(target));
    }
  }

  function drawDesign(svg, design) {
    const { axis, x, y } = frame;
    const index = data.designs.indexOf(design);
    const group = node(svg, "g", { class: "design", "data-design": index, stroke: color(design), "clip-path": "url(#plot)" });
    const path = (list) => list.filter((point) => !view.log || point[axis.index] > 0)
      .map((point, at) => `${at ? "L" : "M"}${x(point[axis.index]).toFixed(1)} ${y(point[ACCURACY]).toFixed(1)}`).join("");
    if (design.seeds.length > 1) for (const seed of design.seeds) node(group, "path", { class: "seed", d: path(seed.points) });
    node(group, "path", { class: design.dashed ? "median dashed" : "median", d: path(design.median) });
    const arrival = design.arrival[axis.index];
    if (arrival !== null) node(group, "circle", { class: "ring", cx: x(arrival), cy: y(design.target), r: 5 });
  }

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  let cursor = null;
  function point(px) {
    const { axis, box, back } = frame;
    cursor = Math.min(Math.max(px, box.left), box.right);
    const at = back(cursor);
    const cross = canvas.querySelector(".cross");
    for (const end of ["x1", "x2"]) cross.setAttribute(end, cursor);
    cross.setAttribute("visibility", "visible");
    tip.replaceChildren();
    const title = document.createElement("strong");
    title.textContent = axis.scales.length > 1 ? quantity(at, axis.scales) : `${Math.round(at)} ${axis.label}`;
    tip.append(title);
    const rows = shown().map((design) => ({ design, seen: design.median.filter((each) => each[axis.index] <= at) }))
      .map(({ design, seen }) => ({ design, last: seen[seen.length - 1], ended: seen.length === design.median.length }))
      .sort((one, other) => (data.rising ? 1 : -1) * ((other.last?.[ACCURACY] ?? 0) - (one.last?.[ACCURACY] ?? 0)));
    for (const { design, last, ended } of rows) {
      const row = document.createElement("div");
      row.style.setProperty("--c", color(design));
      const [dot, name, value] = ["i", "span", "em"].map((tag) => document.createElement(tag));
      name.textContent = design.name;
      value.textContent = last ? shownValue(last[ACCURACY]) + (ended ? " ■" : "") : "–";
      row.append(dot, name, value);
      tip.append(row);
    }
    tip.hidden = false;
    const onRight = cursor < (box.left + box.right) / 2;
    tip.style.left = onRight ? `${cursor + 16}px` : "";
    tip.style.right = onRight ? "" : `${frame.width - cursor + 16}px`;
    tip.style.top = `${Math.max(box.top, box.bottom - tip.offsetHeight - 14)}px`;
  }
  function unpoint() {
    tip.hidden = true;
    cursor = null;
    canvas.querySelector(".cross")?.setAttribute("visibility", "hidden");
  }
  function step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") unpoint();
    if (!by) return;
    event.preventDefault();
    const { box } = frame;
    point((cursor ?? box.left) + (by * (box.right - box.left)) / 40);
  }

  function highlight(index) {
    for (const group of canvas.querySelectorAll(".design")) {
      group.classList.toggle("dim", index !== null && group.dataset.design !== String(index));
    }
  }
  data.designs.forEach((design, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    const swatch = node(button, "svg", { width: 26, height: 10, "aria-hidden": "true" });
    node(swatch, "line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke: color(design), "stroke-width": 3, "stroke-dasharray": design.dashed ? "7 3" : "none" });
    button.append(design.name);
    button.addEventListener("click", () => {
      view.hidden.has(index) ? view.hidden.delete(index) : view.hidden.add(index);
      button.setAttribute("aria-pressed", String(!view.hidden.has(index)));
      draw();
    });
    button.addEventListener("pointerenter", () => highlight(index));
    button.addEventListener("pointerleave", () => highlight(null));
    legend.append(button);
  });

  for (const group of document.querySelectorAll("[data-control]")) {
    const key = group.dataset.control;
    const show = () => {
      for (const button of group.children) button.setAttribute("aria-pressed", String(Number(button.dataset.value) === view[key]));
    };
    for (const button of group.children) {
      button.addEventListener("click", () => {
        view[key] = Number(button.dataset.value);
        show();
        unpoint();
        draw();
      });
    }
    show();
  }
  document.querySelector('[data-control="axis"] button').textContent = data.counted ? "Samples" : "Steps";
  document.querySelector(".controls").hidden = false;
  canvas.append(tip);
  draw();
  new ResizeObserver(() => {
    if (frame && Math.abs(canvas.clientWidth - frame.width) > 1) draw();
  }).observe(canvas);
})();
