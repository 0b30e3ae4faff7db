// One group: who is in it, how far it is behind in each partition and why, in records and in time; what is in flight.

import { get, getWanted, post, session } from "../api.js";
import { confirmByName, openDialog } from "../dialog.js";
import { badge, field, fill, h, link, refill, select, table, toast } from "../dom.js";
import { duration, localTime, moment, number, plural, rate, withZone, zone } from "../format.js";
import { slopes, trend } from "../charts.js";
import { go, href, hrefOfFinding } from "../router.js";
import { STATE_KINDS } from "./groups.js";

export async function show(main, params, scope) {
  const body = { top: h("div", { class: "stack" }), course: h("div", { class: "trends" }), rest: h("div", { class: "stack" }) };
  const course = h("section", { class: "card course", "aria-labelledby": "course-title" }, h("h2", { id: "course-title" }, "Trend"), body.course);
  const head = h("div", { class: "page-head" });
  const load = async () => {
    const told = await get("group", { group: params.group }, scope.signal);
    drawHead(head, told, load);
    draw(body, told);
  };
  await load();
  fill(
    main,
    h("nav", { class: "crumbs", "aria-label": "You are here" }, h("a", { href: "#/groups" }, "Groups")),
    head,
    h("div", { class: "stack grow" }, body.top, course, body.rest),
  );
  scope.every(4000, () => load().catch(() => {}));
}

function drawHead(head, told, again) {
  refill(
    head,
    h("h1", { class: "mono" }, told.group),
    badge(told.state, STATE_KINDS[told.state] ?? "warn"),
    h(
      "span",
      { class: "quiet" },
      [
        `${told.type || "classic"} group`.toLowerCase(),
        told.assignor ? `assignor ${told.assignor}` : null,
        told.epoch === null ? null : `epoch ${told.epoch}`,
        `coordinator ${told.coordinator}`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
    h("div", { class: "spacer" }),
    session.writes
      ? h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", onclick: () => reset(told, again) }, "Reset offsets"),
          h("button", { type: "button", class: "danger", onclick: () => remove(told) }, "Delete"),
        )
      : null,
  );
}

function remove(told) {
  confirmByName("Delete the group", told.group, "Its committed offsets are gone for good.", "Delete", async (typed) => {
    toast((await post("group/delete", { group: told.group, confirm: typed })).done);
    go("groups");
  });
}

const tile = (name, value, note) =>
  h("div", { class: "tile" }, h("dt", null, name), h("dd", null, value, note ? h("small", null, note) : null));

/** Why records wait: each reason with what helps, and links to where more is seen. */
function drawReasons(told) {
  if (!told.reasons.length) return null;
  return h(
    "section",
    { "aria-labelledby": "reasons-title" },
    h("h2", { id: "reasons-title" }, "Why records wait"),
    h(
      "ul",
      { class: "troubles" },
      told.reasons.map((reason) =>
        h(
          "li",
          { class: reason.severity === "error" ? "bad" : "warn" },
          h("div", null, badge(reason.severity === "error" ? "stuck" : "lagging", reason.severity === "error" ? "bad" : "warn")),
          h("div", null, h("p", null, reason.text), h("p", { class: "quiet" }, reason.advice)),
          h(
            "div",
            { class: "since places" },
            reason.links
              .filter((each) => each.kind !== "client" || (session.explorer && each.client_id))
              .map((each) => link(each.text, hrefOfFinding(each), { class: "button" })),
          ),
        ),
      ),
    ),
  );
}

const inSeconds = (value) => (value === null ? "–" : value < 1 ? "0 s" : duration(value * 1000));

/** The lag in records and in time; what is read and written a second, which two looks tell. */
function trends({ course, flow }) {
  const of = (points, index) => points.map((point) => [point[0], point[index]]);
  return [
    h("div", null, trend("Trend of the lag", [
      { title: "Lag in records", points: of(course, 1), shown: number },
      { title: "Lag in time", points: of(course, 2), shown: inSeconds },
    ])),
    flow.length > 2
      ? h("div", null, trend("Trend of the traffic", [
          { title: "Records read / s", points: slopes(flow, 1), shown: rate },
          { title: "Records written / s", points: slopes(flow, 2), shown: rate },
        ]))
      : null,
  ];
}

function draw(body, told) {
  const known = told.partitions.filter((each) => each.lag !== null);
  const lag = known.reduce((sum, each) => sum + each.lag, 0);
  const waiting = told.partitions.map((each) => each.waiting_since).filter((each) => each !== null);
  const oldest = waiting.length ? Math.min(...waiting) : null;
  const idle = told.partitions.filter((each) => each.lag > 0 && !each.member).length;
  const share = told.type === "Share";
  refill(body.course, trends(told));
  refill(
    body.top,
    h(
      "dl",
      { class: "tiles" },
      tile("Members", number(told.members.length)),
      tile("Partitions", number(told.partitions.length)),
      tile("Lag", number(lag), "records"),
      share ? null : tile("Waiting", oldest === null ? "–" : duration(told.now - oldest), oldest === null ? (lag ? "not known" : "nothing waits") : "the longest"),
    ),
    drawReasons(told),
    idle && told.members.length && told.type === "Share"
      ? h("p", { class: "note" }, `${plural(idle, "partition")} with lag ${idle === 1 ? "has" : "have"} no member that reads it.`)
      : null,
  );
  refill(
    body.rest,
    h(
      "section",
      { class: "card" },
      h("h2", null, "Partitions"),
      table(
        "Partitions",
        [
          { title: "Topic", class: "name", cell: (p) => link(p.topic, href("topic", { name: p.topic })) },
          { title: "Partition", number: true, cell: (p) => p.partition },
          {
            title: share ? "Done before" : "Committed",
            number: true,
            cell: (p) =>
              p.offset === null
                ? "–"
                : link(number(p.offset), href("topic", { name: p.topic, from: "offset", at: p.offset, partitions: p.partition }), {
                    title: "The records from there on",
                  }),
          },
          { title: "End", number: true, cell: (p) => number(p.end) },
          { title: "Lag", number: true, cell: (p) => (p.lag ? h("span", { class: "strong" }, number(p.lag)) : number(p.lag)) },
          share
            ? null
            : {
                title: "Waiting for",
                number: true,
                cell: (p) =>
                  p.waiting_since === null
                    ? "–"
                    : h("span", { title: `since ${moment(p.waiting_since)}` }, duration(told.now - p.waiting_since)),
              },
          share
            ? null
            : {
                title: "Next record",
                cell: (p) =>
                  p.lag
                    ? link("Look at it", hrefOfFinding({ ...p, kind: "record", offset: Math.max(p.offset, p.start ?? 0) }), {
                        "aria-label": `Look at the next record of ${p.topic}-${p.partition}`,
                      })
                    : "–",
              },
          { title: "Member", class: "mono", cell: (p) => p.client ?? (p.problem ? h("span", { class: "warn-text" }, p.problem) : "–") },
        ].filter(Boolean),
        told.partitions,
        { empty: "The group has committed nothing, and reads nothing." },
      ),
    ),
    told.in_flight ? inFlight(told.in_flight) : null,
    h(
      "section",
      { class: "card" },
      h("h2", null, "Members"),
      table(
        "Members",
        [
          { title: "Client", class: "name", cell: (m) => h("span", { title: m.id }, m.client || m.id) },
          { title: "Host", class: "mono", cell: (m) => m.host },
          { title: "Instance", cell: (m) => m.instance ?? "–" },
          { title: "Epoch", number: true, cell: (m) => m.epoch ?? "–" },
          { title: told.type === "Streams" ? "Tasks" : "Assigned", class: "mono wrap", cell: (m) => assigned(m) },
        ],
        told.members,
        { empty: "Nobody is in the group." },
      ),
    ),
  );
}

const IN_FLIGHT = {
  acquired: ["held", "good"],
  available: ["waits for the next", "warn"],
  archiving: ["becomes a dead letter", "bad"],
};

/** The records of a share group that members have been handed, and that are not done with. */
function inFlight(told) {
  const silent = told.untold.filter((each) => !each.problem).length;
  const failed = told.untold.filter((each) => each.problem);
  return h(
    "section",
    { class: "card" },
    h("h2", null, "In flight"),
    silent
      ? h("p", { class: "note" }, `${silent === 1 ? "The broker that leads" : "The brokers that lead"} ${plural(silent, "partition")} ${silent === 1 ? "does" : "do"} not tell what is in flight: Apache Kafka's do not.`)
      : null,
    failed.map((each) => h("p", { class: "note" }, `${each.partition}: ${each.problem}`)),
    told.ranges > told.rows.length
      ? h("p", { class: "note" }, `The first ${number(told.rows.length)} of ${number(told.ranges)} ranges are shown.`)
      : null,
    told.rows.length || !told.untold.length
      ? table(
          "In flight",
          [
            { title: "Topic", class: "name", cell: (r) => link(r.topic, href("topic", { name: r.topic })) },
            { title: "Partition", number: true, cell: (r) => r.partition },
            {
              title: "Offsets",
              number: true,
              cell: (r) =>
                link(
                  r.first === r.last ? number(r.first) : `${number(r.first)}–${number(r.last)}`,
                  href("topic", { name: r.topic, from: "offset", at: r.first, partitions: r.partition }),
                  { title: "The records from there on" },
                ),
            },
            { title: "Records", number: true, cell: (r) => number(r.last - r.first + 1) },
            { title: "State", cell: (r) => badge(...(IN_FLIGHT[r.state] ?? [r.state, "quiet"])) },
            { title: "Deliveries", number: true, cell: (r) => number(r.deliveries) },
            {
              title: "Holder",
              cell: (r) =>
                r.member === null
                  ? "–"
                  : [r.client ?? "not in the group any more", h("div", { class: "quiet mono" }, r.member)],
            },
            { title: "Host", class: "mono", cell: (r) => r.host ?? "–" },
            { title: "Lock ends in", number: true, cell: (r) => duration(r.lock_ms_left) },
          ],
          told.rows,
          { empty: "No record is in flight: none is with a member, and none came back." },
        )
      : null,
  );
}

function assigned(member) {
  return [
    member.assignment.join(", ") || "nothing",
    member.pending ? h("div", { class: "warn-text" }, `moving to: ${member.pending.join(", ") || "nothing"}`) : null,
  ];
}

const HOUR_MS = 3_600_000;

/** A reset: first what would change, then the change. */
function reset(told, again) {
  const topics = [...new Set(told.partitions.map((each) => each.topic))];
  const topic = select([["", "all topics with offsets"], ...topics.map((name) => [name, name])], "");
  const to = select(
    [["earliest", "the beginning"], ["latest", "the end"], ["time", "a time"], ["offset", "an offset"], ["shift", "on or back by"]],
    "earliest",
  );
  const value = h("input", { type: "number" });
  const time = h("input", { type: "datetime-local", step: "1", required: true });
  time.value = localTime(told.now - HOUR_MS);
  const partitions = h("input", { type: "text", placeholder: "all", pattern: "[0-9,\\s\\-]*" });
  const partitionsField = field("Partitions", partitions, "Such as 0 or 0,3-5");
  const valueField = field("Number", value, "Negative goes back");
  const timeField = field("Time", time, `An hour ago to begin with; in this browser's time zone (${zone()})`);
  const preview = h("div", { class: "preview", role: "status" });
  const trouble = h("p", { class: "form-trouble", role: "alert" });
  const apply = h("button", { type: "button", class: "primary", disabled: true }, "Reset");
  const asked = () => ({
    group: told.group,
    topic: topic.value,
    partitions: topic.value ? partitions.value.replace(/\s/g, "") : "",
    to: to.value,
    offset: to.value === "offset" ? value.value : "",
    by: to.value === "shift" ? value.value : "",
    at: to.value === "time" ? withZone(time.value) : "",
  });
  let seen = {}; // the reset whose preview is shown
  const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const adjust = () => {
    valueField.hidden = !["offset", "shift"].includes(to.value);
    timeField.hidden = to.value !== "time";
    partitionsField.hidden = !topic.value;
    time.disabled = timeField.hidden; // or an empty field that is not seen refuses the form
    apply.disabled = true;
    fill(preview);
    fill(trouble);
  };
  for (const input of [topic, partitions, to, value, time]) input.addEventListener("input", adjust);
  adjust();
  openDialog(
    `Reset offsets of ${told.group}`,
    (close) => {
      const look = async (event) => {
        event.preventDefault();
        fill(trouble);
        try {
          const plan = await getWanted("group/reset", asked);
          seen = asked();
          fill(
            preview,
            planTable(plan.rows),
            plan.note ? h("p", { class: "note" }, plan.note) : null,
            plan.refusal ? h("p", { class: "form-trouble" }, plan.refusal) : null,
          );
          apply.disabled = !plan.rows.length || plan.refusal !== "";
        } catch (error) {
          if (error.name !== "AbortError") fill(trouble, error.message);
        }
      };
      apply.addEventListener("click", async () => {
        apply.disabled = true;
        fill(trouble);
        try {
          toast((await post("group/reset", seen)).done);
          close();
          again().catch(() => {});
        } catch (error) {
          fill(trouble, error.message);
          apply.disabled = !isSame(seen, asked());
        }
      });
      return h(
        "form",
        { class: "form", onsubmit: look },
        told.members.length
          ? h("p", { class: "note" }, `${plural(told.members.length, "member is", "members are")} in the group: stop them first. A preview can be had all the same.`)
          : null,
        h("div", { class: "columns" }, field("Topic", topic), partitionsField, field("To", to), valueField, timeField),
        preview,
        trouble,
        h("div", { class: "actions" }, h("button", { type: "button", onclick: close }, "Cancel"), h("button", { type: "submit" }, "Preview"), apply),
      );
    },
    { wide: true },
  );
}

function planTable(rows) {
  return table(
    "What would change",
    [
      { title: "Topic", class: "name", cell: (r) => r.topic },
      { title: "Partition", number: true, cell: (r) => r.partition },
      { title: "Now", number: true, cell: (r) => number(r.current) },
      { title: "New", number: true, cell: (r) => h("span", { class: "strong" }, number(r.new)) },
      { title: "Change", number: true, cell: (r) => (r.change === null ? "–" : `${r.change > 0 ? "+" : ""}${number(r.change)}`) },
      { title: "Note", cell: (r) => r.note },
    ],
    rows,
  );
}

