// Access changed: rules, users, quotas, each after it was seen who gains or loses what.

import { get, getWanted, post } from "../api.js";
import { confirmByName, openForm } from "../dialog.js";
import { badge, field, fill, h, select, table, toast } from "../dom.js";
import { number, plural } from "../format.js";

export const words = (name) => name.toLowerCase().replaceAll("_", " ");

const button = (text, action, attributes) => h("button", { type: "button", onclick: action, ...attributes }, text);
export const removeButton = (label, action) => button("Remove", action, { class: "plain", "aria-label": `Remove ${label}` });

const gainsTable = (rows, label = "Who gains or loses what") =>
  table(
    label,
    [
      { title: "Who", class: "mono", cell: (r) => r.principal },
      { title: "Then", cell: (r) => badge(r.gains ? "gains" : "loses", r.gains ? "good" : "bad") },
      { title: "What", cell: (r) => r.operations.map(words).join(", "), class: "wrap" },
      { title: "On", class: "mono wrap", cell: (r) => (r.names.length > 8 ? `${r.names.slice(0, 8).join(", ")} and ${number(r.names.length - 8)} more` : r.names.join(", ")) },
    ],
    rows,
    { empty: "Nobody gains or loses anything: other rules say the same, or more." },
  );

/** Operations of one principal on the same names in one row. */
function together(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.principal, row.gains, row.names]);
    if (!found.has(key)) found.set(key, { ...row, operations: [] });
    found.get(key).operations.push(row.operation);
  }
  return [...found.values()];
}

/** Who gains and loses what, as the server computes it. */
function drawPreview(box, { rows, open, note }, from) {
  fill(
    box,
    from ?? null,
    note ? h("p", { class: "note" }, note) : gainsTable(together(rows)),
    open ? [h("p", { class: "note" }, "Where the brokers have allow.everyone.if.no.acl.found=true, which they tell nobody:"), gainsTable(together(open), "Who gains or loses what there")] : null,
  );
}

function previewOf(asked) {
  const box = h("div", { class: "stack preview", role: "status" });
  const from = h("input", { type: "text", placeholder: "the rule's, or one that no rule names", spellcheck: "false" });
  const place = field("For who comes from the address", from, "Other rules may hold for some addresses alone");
  from.addEventListener("change", () => look());
  const look = async () => {
    const { principal, type, name } = asked();
    if (!/^\w+:./.test(principal) || (!name && type !== "CLUSTER")) {
      fill(box, h("p", { class: "quiet" }, "Fill in the fields to see who gains or loses what."));
      return;
    }
    try {
      drawPreview(box, await getWanted("acls/preview", () => ({ ...asked(), seen_from: from.value })), place);
    } catch (error) {
      if (error.name !== "AbortError") fill(box, h("p", { class: "form-trouble" }, error.message));
    }
  };
  return { box, look };
}

/** Add a rule: the preview follows the fields. */
export function addRule(operations, done) {
  const input = (placeholder) => h("input", { type: "text", placeholder, spellcheck: "false", autocomplete: "off" });
  const [principal, name, host] = [input("User:alice"), input("orders"), input("* is any")];
  const permission = select([["ALLOW", "allow"], ["DENY", "deny"]], "ALLOW");
  const type = select(Object.keys(operations).map((each) => [each, words(each)]), "TOPIC");
  const pattern = select([["LITERAL", "is"], ["PREFIXED", "begins with"]], "LITERAL");
  const operation = h("select");
  const nameFields = [field("Name …", pattern), field("Name", name, "* is all of them")];
  const adjust = () => {
    fill(operation, ["ALL", ...operations[type.value]].map((each) => h("option", { value: each }, words(each))));
    operation.value = operations[type.value].includes("READ") ? "READ" : operations[type.value][0];
    for (const each of nameFields) each.hidden = type.value === "CLUSTER";
  };
  type.addEventListener("change", adjust);
  adjust();
  const asked = () => ({
    principal: principal.value,
    permission: permission.value,
    type: type.value,
    operation: operation.value,
    pattern: pattern.value,
    name: name.value,
    host: host.value,
  });
  const { box, look } = previewOf(asked);
  for (const each of [principal, permission, type, operation, pattern, name, host]) each.addEventListener("input", look);
  look();
  openForm("Add a rule", {
    wide: true,
    action: "Add",
    fields: [
      h("div", { class: "columns" }, field("Who", principal), field("Rule", permission), field("May", operation)),
      h("div", { class: "columns" }, field("On", type), nameFields, field("From host", host)),
      box,
    ],
    send: async () => {
      toast((await post("acls/create", asked())).done);
      done();
    },
  });
}

/** Take a rule away: a row of the table of rules. */
export function removeRule([principal, permission, operation, type, pattern, name, host], done) {
  const asked = () => ({ principal, permission, operation, type, pattern, name, host, remove: true });
  const { box, look } = previewOf(asked);
  look();
  openForm("Remove the rule", {
    wide: true,
    danger: true,
    action: "Remove",
    fields: [h("p", { class: "mono" }, [principal, words(permission), words(operation), words(type), words(pattern), name, `from ${host}`].join(" · ")), box],
    send: async () => {
      toast((await post("acls/delete", asked())).done);
      done();
    },
  });
}

/** Give a user a password; `users` are those that there are. */
export function setPassword(users, done) {
  const user = h("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off" });
  const password = h("input", { type: "password", required: true, autocomplete: "new-password" });
  const mechanism = select(["SCRAM-SHA-512", "SCRAM-SHA-256"].map((each) => [each, each]), "SCRAM-SHA-512");
  const box = h("p", { role: "status" });
  const look = () => {
    const own = users.filter((each) => each.user === user.value).map((each) => each.mechanism);
    fill(
      box,
      !user.value ? "" : own.includes(mechanism.value)
        ? `${user.value} has a password for ${mechanism.value} already: programs that log in with it cannot any more.`
        : own.length ? `${user.value} can log in by ${own.join(", ")}, and then by ${mechanism.value}, too.` : `${user.value} is a new user, and may do what the rules for User:${user.value} and User:* say.`,
    );
  };
  for (const each of [user, mechanism]) each.addEventListener("input", look);
  openForm("Set a password", {
    action: "Set",
    fields: [field("User", user), field("Mechanism", mechanism), field("Password", password, "Only the salted password leaves the console."), box],
    send: async () => {
      toast((await post("user/set", { user: user.value, password: password.value, mechanism: mechanism.value })).done);
      done();
    },
  });
}

export async function removeUser({ user, mechanism }, users, done) {
  const others = users.filter((each) => each.user === user && each.mechanism !== mechanism).map((each) => each.mechanism);
  const rules = (await get("acls", { filter: `User:${user}` }).catch(() => ({ rows: [] }))).rows.filter(([who]) => who === `User:${user}`);
  const rest = others.length ? `${user} can still log in by ${others.join(", ")}.` : `${user} can log in by SCRAM no more; ${plural(rules.length, "rule stays", "rules stay")}.`;
  confirmByName(`Remove ${mechanism} of ${user}`, user, rest, "Remove", async (typed) => {
    toast((await post("user/delete", { user, mechanism, confirm: typed })).done);
    done();
  });
}

const KEYS = {
  producer_byte_rate: "Produced, bytes/s",
  consumer_byte_rate: "Fetched, bytes/s",
  request_percentage: "Brokers' time, %",
  controller_mutation_rate: "Partitions made/s",
  connection_creation_rate: "Connections/s",
};

const ENTITIES = { "user": ["user"], "client-id": ["client-id"], "user and client-id": ["user", "client-id"], "ip": ["ip"] };

export const entityText = (entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? "(all others)"}`).join(", ");

/** Set quotas of an entity: `known` are all that there are, `begin` the one to begin with. */
export function setQuota(known, done, begin) {
  const text = () => h("input", { type: "text", placeholder: "all others", spellcheck: "false", autocomplete: "off" });
  const kinds = select(Object.keys(ENTITIES).map((each) => [each, each]), begin ? Object.keys(begin.entity).sort().reverse().join(" and ") : "user");
  const names = { user: text(), "client-id": text(), ip: text() };
  for (const [kind, name] of Object.entries(begin?.entity ?? {})) names[kind].value = name ?? "";
  const nameFields = Object.fromEntries(Object.entries(names).map(([kind, input]) => [kind, field(kind, input)]));
  const values = Object.fromEntries(Object.keys(KEYS).map((key) => [key, h("input", { type: "text", inputmode: "decimal", placeholder: "no limit" })]));
  const valueFields = Object.fromEntries(Object.entries(values).map(([key, input]) => [key, field(KEYS[key], input)]));
  const box = h("div", { class: "preview", role: "status" });
  const entity = () => Object.fromEntries(ENTITIES[kinds.value].map((kind) => [kind, names[kind].value.trim() || null]));
  const entries = (of) => JSON.stringify(Object.entries(of).sort());
  const before = () => known.find((each) => entries(each.entity) === entries(entity()))?.values ?? {};
  const changed = () => {
    const own = before();
    return Object.keys(KEYS).filter((key) => !valueFields[key].hidden && values[key].value.trim() !== String(own[key] ?? ""));
  };
  const look = () => {
    const own = before();
    const rows = changed().map((key) => ({ key, now: own[key], then: values[key].value.trim() }));
    fill(box, rows.length
      ? table("What would change", [
          { title: `Of ${entityText(entity())}`, cell: (r) => r.key },
          { title: "Now", number: true, cell: (r) => (r.now === undefined ? "no limit" : number(r.now)) },
          { title: "Then", number: true, cell: (r) => h("span", { class: "strong" }, r.then ? (Number.isNaN(Number(r.then)) ? r.then : number(Number(r.then))) : "no limit") },
          { title: "Effect", cell: (r) => (Number(r.then || Infinity) > (r.now ?? Infinity) ? badge("gains", "good") : badge("loses", "bad")) },
        ], rows)
      : h("p", { class: "quiet" }, "Nothing would change."));
  };
  const adjust = () => {
    const own = before();
    for (const [kind, made] of Object.entries(nameFields)) made.hidden = !ENTITIES[kinds.value].includes(kind);
    for (const [key, made] of Object.entries(valueFields)) {
      made.hidden = (key === "connection_creation_rate") !== (kinds.value === "ip");
      values[key].value = own[key] ?? "";
    }
    look();
  };
  for (const each of [kinds, ...Object.values(names)]) each.addEventListener("input", adjust);
  for (const each of Object.values(values)) each.addEventListener("input", look);
  adjust();
  openForm("Set quotas", {
    wide: true,
    action: "Set",
    fields: [
      h("div", { class: "columns" }, field("Of", kinds), Object.values(nameFields)),
      h("div", { class: "columns" }, Object.values(valueFields)),
      h("p", { class: "quiet small" }, "Each broker counts for itself. Of the quotas that fit a client the most particular holds: a user with a client id, the user, the client id. What has no name has that of all others."),
      box,
    ],
    send: async () => {
      const set = Object.fromEntries(changed().map((key) => [key, values[key].value.trim()]));
      if (!Object.keys(set).length) throw new Error("Nothing would change.");
      const of = Object.fromEntries(Object.entries(entity()).map(([kind, name]) => [kind, name ?? ""]));
      toast((await post("quota/set", { entity: of, values: set })).done);
      done();
    },
  });
}
