// One subject of the schema registry: its versions, the text of one, and what has changed between two.

import { get, post, session } from "../api.js";
import { confirmByName, openForm } from "../dialog.js";
import { badge, copyText, field, fill, h, link, problem, select, toast } from "../dom.js";
import { plural } from "../format.js";
import { coloured } from "../json_text.js";
import { go, href, note } from "../router.js";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];
export const KINDS = { AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf" };
const MOST_LINES = 3000; // the comparison of longer texts would take the page too long

export async function show(main, params, scope) {
  const name = params.name;
  const told = await get("subject", { subject: name }, scope.signal);
  const options = [...told.versions].reverse().map((each) => [String(each), `Version ${each}`]);
  const version = select(options, told.versions.map(String).includes(params.version) ? params.version : options[0][0], { "aria-label": "Version" });
  const other = select([["", "nothing"], ...options], params.with ?? "", { "aria-label": "Compared with" });
  const facts = h("span", { class: "quiet", role: "status" });
  const body = h("div", { class: "stack grow" });
  let shown = null;
  const schema = (number) => get("schema", { subject: name, version: number }, scope.signal);
  const draw = async () => {
    note("subject", { name, version: version.value, with: other.value });
    try {
      const [now, before] = await Promise.all([schema(version.value), other.value ? schema(other.value) : null]);
      shown = now;
      fill(facts, `id ${now.id}`);
      fill(
        body,
        now.references.length
          ? h("p", null, "Refers to ", now.references.map((each, at) => [at ? ", " : "", link(`${each.subject}, version ${each.version}`, href("subject", { name: each.subject, version: each.version }))]))
          : null,
        before ? difference(before, now) : h("pre", { class: "code schema-text", tabindex: "0", "aria-label": "Schema" }, now.kind === "PROTOBUF" ? now.text : coloured(now.text)),
      );
    } catch (error) {
      if (error.name !== "AbortError") fill(body, problem(error, draw));
    }
  };
  for (const each of [version, other]) each.addEventListener("change", draw);
  await draw();
  const button = (text, action, kind) => h("button", { type: "button", class: kind, onclick: action }, text);
  fill(
    main,
    h("nav", { class: "crumbs", "aria-label": "You are here" }, h("a", { href: "#/subjects" }, "Schemas")),
    h(
      "div",
      { class: "page-head" },
      h("h1", { class: "mono" }, name),
      shown ? badge(KINDS[shown.kind] ?? shown.kind) : null,
      h("span", { class: "quiet" }, plural(told.versions.length, "version"), ` · compatibility ${told.level ?? `${told.everywhere}, as everywhere`}`),
      told.topics.map((topic) => h("span", { class: "quiet" }, "· topic ", link(topic, href("topic", { name: topic })))),
      h("div", { class: "spacer" }),
      session.writes
        ? h(
            "div",
            { class: "buttons" },
            button("New version", () => registerSchema(name, shown), "primary"),
            button("Compatibility", () => changeLevel(told)),
            button("Delete", () => remove(told, version.value), "danger"),
          )
        : null,
    ),
    h("div", { class: "bar" }, version, h("span", { class: "quiet" }, "compared with"), other, facts, h("div", { class: "spacer" }), button("Copy", () => copyText(shown?.text ?? ""))),
    body,
  );
}

// --- What has changed ------------------------------------------------------------------------------------------------

function difference(before, now) {
  const [old, made] = [before.text.split("\n"), now.text.split("\n")];
  if (old.length > MOST_LINES || made.length > MOST_LINES) return h("p", { class: "note" }, `Texts of more than ${MOST_LINES} lines are not compared.`);
  const lines = compare(old, made);
  const changed = lines.filter(([sign]) => sign !== " ").length;
  return [
    h("p", { class: "quiet" }, changed ? `${plural(changed, "line")} changed from version ${before.version} to version ${now.version}` : "Their texts are the same."),
    h("pre", { class: "code schema-text", tabindex: "0", "aria-label": "Changes" }, lines.map(([sign, line]) => h(sign === "+" ? "ins" : sign === "-" ? "del" : "span", null, `${sign} ${line}\n`))),
  ];
}

/** Lines of both texts in order, each with a sign: in the one (-), in the other (+), in both. */
export function compare(old, made) {
  // Of what is left of both, from the end: how many lines they have in common at most.
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(made.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = made.length - 1; j >= 0; j -= 1) {
      common[i][j] = old[i] === made[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < made.length) {
    if (i < old.length && j < made.length && old[i] === made[j]) lines.push([" ", old[i++], j++]);
    else if (j >= made.length || (i < old.length && common[i + 1][j] >= common[i][j + 1])) lines.push(["-", old[i++]]);
    else lines.push(["+", made[j++]]);
  }
  return lines;
}

// --- Changes ---------------------------------------------------------------------------------------------------------

/** Register a schema: the next version of a subject, or the first of a new one. It is checked before. */
export function registerSchema(subject, latest) {
  const name = h("input", { type: "text", required: true, spellcheck: "false", placeholder: "orders-value" });
  const kind = select(Object.entries(KINDS), latest?.kind ?? "AVRO");
  const text = h("textarea", { rows: 16, spellcheck: "false", required: true, class: "mono" });
  const references = h("textarea", { rows: 2, spellcheck: "false", placeholder: '[{"name": "shop.Customer", "subject": "customers-value", "version": 1}]' });
  const outcome = h("div", { role: "status", class: "stack" });
  [name.value, text.value] = [subject ?? "", latest?.text ?? ""];
  if (latest?.references.length) references.value = JSON.stringify(latest.references);
  const given = () => ({ subject: name.value, kind: kind.value, text: text.value, references: references.value });
  for (const each of [name, kind, text, references]) each.addEventListener("input", () => fill(outcome));
  const check = async () => {
    const told = await post("schema/check", given());
    fill(
      outcome,
      h("p", null, badge(told.compatible ? "compatible" : "not compatible", told.compatible ? "good" : "bad"), told.level ? ` as ${told.level} asks` : ""),
      told.messages.length ? h("ul", null, told.messages.map((each) => h("li", { class: "wrap" }, each))) : null,
    );
    return told.compatible;
  };
  const checkNow = () => check().catch((error) => fill(outcome, h("p", { class: "form-trouble" }, error.message)));
  openForm(subject ? `New version of ${subject}` : "New subject", {
    wide: true,
    action: "Register",
    fields: [
      subject ? null : field("Subject", name, "As serializers name it: the topic, and -key or -value"),
      field("Type", kind),
      field("Schema", text),
      field("References", references, "Other subjects that it uses, as JSON; may be empty"),
      outcome,
    ],
    extra: h("button", { type: "button", onclick: checkNow }, "Check"),
    send: async () => {
      if (!(await check())) throw new Error("It is not compatible, and is not registered.");
      toast((await post("schema/register", given())).done);
      reload(name.value);
    },
  });
}

function reload(name) {
  go("subject", { name });
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

function changeLevel(told) {
  const level = select([["", `as everywhere (${told.everywhere})`], ...LEVELS.map((each) => [each, each])], told.level ?? "");
  openForm(`Compatibility of ${told.subject}`, {
    action: "Set",
    fields: [field("New versions are", level, "BACKWARD: who has the new one reads what was written by the last; FORWARD: who has the last reads what is written by the new one")],
    send: async () => {
      toast((await post("subject/compatibility", { subject: told.subject, level: level.value })).done);
      reload(told.subject);
    },
  });
}

function remove(told, version) {
  const what = select([[version, `version ${version} alone`], ["", "the subject with all its versions"]], told.versions.length > 1 ? version : "");
  confirmByName(
    "Delete a schema",
    told.subject,
    ["Serializers do not find it any more. Records that were written by it stay readable: its id stays known.", field("Delete", what)],
    "Delete",
    async (typed) => {
      toast((await post("schema/delete", { subject: told.subject, version: what.value, confirm: typed })).done);
      if (what.value && told.versions.length > 1) reload(told.subject);
      else go("subjects");
    },
  );
}
