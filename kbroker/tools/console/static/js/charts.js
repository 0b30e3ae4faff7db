// Trends: lines over the time that the console has looked, and a table of the same for readers.

import { h, table } from "./dom.js";
import { clock } from "./format.js";

const SPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [400, 80]; // it is as wide as its place: the line is stretched, and not its words, which are outside
const MOST_ROWS = 60;

/** An element of a picture; what it says is text and nothing else. */
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children.map((each) => (each instanceof Node ? each : document.createTextNode(String(each)))));
  return made;
}

/** Runs of points [time, value]: where nobody looked for long, or the value was not known, the line has a gap. */
function runs(points) {
  const steps = points.slice(1).map(([at], index) => at - points[index][0]).sort((a, b) => a - b);
  const longest = Math.max(4 * (steps[steps.length >> 1] ?? 0), 30_000);
  const found = [];
  let last = null;
  for (const [at, value] of points) {
    if (value === null) continue;
    if (last === null || at - last > longest) found.push([]);
    found.at(-1).push([at, value]);
    last = at;
  }
  return found;
}

function lines(points, place) {
  return runs(points).map((run) =>
    run.length === 1
      ? svg("circle", { class: "dot", cx: place(run[0])[0], cy: place(run[0])[1], r: 2 })
      : svg("polyline", { class: "line", points: run.map((point) => place(point).map((n) => n.toFixed(1)).join(",")).join(" ") }),
  );
}

function scale(points, width, top, bottom) {
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const most = Math.max(...points.map(([, value]) => value ?? 0), 1e-9);
  return ([at, value]) => [to > from ? ((at - from) / (to - from)) * width : width, bottom - (value / most) * (bottom - top)];
}

/** A line as high as a word, for lists. The number beside it says what matters. */
export function sparkLine(values) {
  if (!values || values.length < 2) return null;
  const points = values.map((value, index) => [index, value]);
  const place = scale(points, 80, 2, 16);
  return svg("svg", { class: "spark", viewBox: "0 0 80 18", width: 80, height: 18, "aria-hidden": "true" }, ...lines(points, place));
}

function chart(title, points, shown) {
  const known = points.map(([, value]) => value).filter((value) => value !== null);
  if (!known.length) return h("figure", { class: "chart" }, h("figcaption", null, title), h("p", { class: "quiet" }, "not known"));
  const [most, least] = [Math.max(...known), Math.min(...known)];
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const told = `${title}, ${clock(from)} to ${clock(to)}: ${shown(known.at(-1))} at last, ${shown(most)} at most, ${shown(least)} at least`;
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", null, title, " ", h("strong", null, shown(known.at(-1))), h("span", { class: "most" }, `at most ${shown(most)}`)),
    svg(
      "svg",
      { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", role: "img", "aria-label": told },
      svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: 0, y2: 0 }),
      ...lines(points, scale(points, WIDTH, 0, HEIGHT)),
    ),
    h("div", { class: "times", "aria-hidden": "true" }, h("span", null, clock(from)), h("span", null, clock(to))),
  );
}

/** The rates of a number that only grows, from point to point: [time, so many a second]. */
export const slopes = (points, index) =>
  points.slice(1).map((point, at) => {
    const [from, to] = [points[at], point];
    const known = to[0] > from[0] && to[index] !== null && from[index] !== null;
    return [to[0], known ? Math.max(((to[index] - from[index]) * 1000) / (to[0] - from[0]), 0) : null];
  });

/** Lines beside one another, and a table of them. Series: {title, points: [[time in ms, number or null]], shown(number)}, all of the same times. */
export function trend(label, series) {
  const times = series[0].points.map(([at]) => at);
  if (times.length < 2) return h("p", { class: "quiet" }, "The trend is drawn from the second look on.");
  const step = Math.ceil(times.length / MOST_ROWS);
  const rows = times.map((at, index) => [at, index]).filter(([, index]) => (times.length - 1 - index) % step === 0).reverse();
  return [
    h("div", { class: "charts" }, series.map(({ title, points, shown }) => chart(title, points, shown))),
    h(
      "details",
      null,
      h("summary", null, "As a table"),
      table(
        label,
        [
          { title: "Time", cell: ([at]) => clock(at) },
          ...series.map(({ title, points, shown }) => ({ title, number: true, cell: ([, index]) => shown(points[index][1]) })),
        ],
        rows,
      ),
    ),
  ];
}
