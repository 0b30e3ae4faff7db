// Tables that topics are followed into: how far each is, and one with its columns, commits and dead letters.

import { get, post, session } from "../api.js";
import { sparkLine, trend } from "../charts.js";
import { badge, fill, h, link, problem, refill, table, toast } from "../dom.js";
import { bytes, duration, moment, number, plural, recent } from "../format.js";
import { href } from "../router.js";

const OLD_SECONDS = 300;

/** How a table is, in a word and a colour. */
function state(told) {
  if (told.problem) return ["in trouble", "bad"];
  if (told.paused) return ["paused", "warn"];
  if (!told.runs) return ["not followed", "bad"];
  return told.follower.state === "following" ? ["following", "good"] : [told.follower.state, "bad"];
}

const inSeconds = (seconds) => (seconds === null || seconds === undefined ? "–" : seconds < 1 ? "0 s" : duration(seconds * 1000));

const age = (told) => (told.lag_seconds > OLD_SECONDS ? h("span", { class: "warn-text" }, inSeconds(told.lag_seconds)) : inSeconds(told.lag_seconds));

/** Why nothing comes into it now; what was wrong before is on its own page. */
const trouble = (told) => told.problem ?? (told.runs && told.follower.state === "following" ? null : (told.error?.text ?? null));

export async function show(main, params, scope) {
  if (params.to) return showOne(main, params.to, scope);
  const body = h("div", { class: "card grow" });
  const count = h("span", { class: "quiet", role: "status" });
  const load = async () => {
    try {
      const told = await get("tables", {}, scope.signal);
      fill(count, plural(told.rows.length, "table"));
      refill(body, drawList(told.rows));
    } catch (error) {
      if (error.name !== "AbortError") fill(body, problem(error, load));
    }
  };
  fill(main, h("div", { class: "page-head" }, h("h1", null, "Tables"), h("div", { class: "spacer" }), count), body);
  await load();
  scope.every(5000, load);
}

const drawList = (rows) => {
  const troubled = rows.some(trouble);
  return table(
    "Tables",
    [
      { title: "Table", class: "name", cell: (t) => link(t.to, href("tables", { to: t.to })) },
      { title: "Topic", class: "name minor", cell: (t) => link(t.topic, href("topic", { name: t.topic })) },
      { title: "State", cell: (t) => badge(...state(t)) },
      { title: "Lag", number: true, class: "minor", cell: (t) => number(t.lag) },
      { title: "Lag in time", number: true, cell: age },
      { title: "Trend", class: "minor", cell: (t) => sparkLine(t.course) ?? "–" },
      { title: "Rows", number: true, class: "minor roomy", cell: (t) => number(t.rows) },
      { title: "Files", number: true, class: "minor roomy", cell: (t) => number(t.files) },
      { title: "Dead letters", number: true, class: "minor", cell: (t) => number(t.dead_letters) },
      troubled ? { title: "Last trouble", class: "wrap why", cell: trouble } : null,
    ].filter(Boolean),
    rows,
    { empty: "The file names no table that you may see.", isStacked: true },
  );
};

// --- One table -----------------------------------------------------------------------------------------------------

async function showOne(main, place, scope) {
  const head = h("div", { class: "page-head" });
  const course = h("div");
  const [top, rest] = [h("div", { class: "stack" }), h("div", { class: "stack" })];
  const load = async () => {
    const told = await get("table", { to: place }, scope.signal);
    drawHead(head, told, load);
    refill(top, drawTop(told));
    if (!told.problem) {
      refill(course, drawCourse(told));
      refill(rest, drawRest(told));
    }
  };
  await load();
  fill(
    main,
    h("nav", { class: "crumbs", "aria-label": "You are here" }, h("a", { href: "#/tables" }, "Tables")),
    head,
    h("div", { class: "stack grow" }, top, h("section", { class: "card course" }, h("h2", null, "Lag"), course), rest),
  );
  scope.every(5000, () => load().catch(() => {}));
}

function drawHead(head, told, again) {
  const pause = async () => {
    try {
      toast((await post("table/pause", { to: told.to, paused: !told.paused })).done);
      await again();
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  refill(
    head,
    h("h1", { class: "mono" }, told.to),
    badge(...state(told)),
    h("span", { class: "quiet" }, [`of topic ${told.topic}`, told.way, told.partition_by && `by ${told.partition_by}`].filter(Boolean).join(", ")),
    h("div", { class: "spacer" }),
    h(
      "div",
      { class: "buttons" },
      link("Open the topic", href("topic", { name: told.topic }), { class: "button" }),
      session.writes && !told.problem ? h("button", { type: "button", onclick: pause }, told.paused ? "Resume" : "Pause") : null,
    ),
  );
}

const tile = (name, value, note) =>
  h("div", { class: "tile" }, h("dt", null, name), h("dd", null, value, note ? h("small", null, note) : null));

function drawTop(told) {
  if (told.problem) return h("p", { class: "note" }, told.problem);
  const last = told.follower;
  const where = last === null ? "nobody has followed it yet" : `process ${last.pid} on ${last.host}`;
  return [
    told.error ? h("p", { class: "note" }, h("strong", null, "Last error "), `${recent(told.error.at)}: ${told.error.text}`) : null,
    h(
      "dl",
      { class: "tiles" },
      tile("Lag", number(told.lag), told.lag && told.lag_seconds >= 1 ? `the oldest is ${inSeconds(told.lag_seconds)} old` : null),
      tile("Rows", number(told.rows)),
      tile("Files", number(told.files), bytes(told.bytes)),
      tile("Version", number(told.version), told.commits.length ? `of ${recent(told.commits[0].at)}` : null),
      tile("Dead letters", number(told.dead_letters)),
    ),
    h("p", { class: "quiet" }, told.runs ? `Followed by ${where}, since ${moment(last.started, { millis: false })}.` : last === null ? `It is not followed: ${where}.` : `It is not followed. The last was ${where}, until ${moment(last.at, { millis: false })}.`),
  ];
}

function drawCourse(told) {
  const points = told.follower?.course ?? [];
  if (points.length < 2) return h("p", { class: "quiet" }, "It is drawn once a follower has told of it twice.");
  return trend("Lag of the table", [
    { title: "Lag in records", points: points.map(([at, lag]) => [at, lag]), shown: number },
    { title: "Age of the oldest", points: points.map(([at, , seconds]) => [at, seconds]), shown: inSeconds },
  ]);
}

function drawRest(told) {
  const card = (title, ...body) => h("section", { class: "card" }, h("h2", null, title), body);
  return [
    told.dead_letters
      ? card(
          "Dead letters",
          table(
            "Dead letters",
            [
              { title: "Time", cell: (d) => recent(d.at) },
              { title: "Record", cell: (d) => link(`${told.topic}-${d._partition} @ ${number(d._offset)}`, href("topic", { name: told.topic, from: "offset", at: d._offset, partitions: d._partition, open: true })) },
              { title: "Reason", class: "wrap why", cell: (d) => d.reason ?? h("span", { class: "quiet" }, "not shown: the records of this topic have masks") },
            ],
            told.last_dead_letters,
            { isStacked: true },
          ),
          told.dead_letters > told.last_dead_letters.length ? h("p", { class: "quiet" }, `The last ${number(told.last_dead_letters.length)} of ${number(told.dead_letters)}.`) : null,
        )
      : null,
    card(
      "Last commits",
      table(
        "Last commits",
        [
          { title: "Time", cell: (c) => recent(c.at) },
          { title: "Version", number: true, cell: (c) => number(c.version) },
          { title: "What", class: "minor", cell: (c) => c.what || "–" },
          { title: "Rows", number: true, cell: (c) => number(c.rows) },
        ],
        told.commits,
      ),
    ),
    card(
      "Columns",
      table(
        "Columns",
        [
          { title: "Name", class: "mono", cell: (c) => c.name },
          { title: "Type", class: "mono wrap", cell: (c) => c.type },
        ],
        told.columns,
      ),
    ),
    card(
      "Partitions",
      table(
        "Partitions",
        [
          { title: "Partition", number: true, cell: (p) => number(p.partition) },
          { title: "Next offset", number: true, cell: (p) => number(p.next_offset) },
          { title: "End", number: true, cell: (p) => number(p.end_offset) },
          { title: "Lag", number: true, cell: (p) => number(p.lag) },
        ],
        told.partitions,
      ),
    ),
  ];
}
