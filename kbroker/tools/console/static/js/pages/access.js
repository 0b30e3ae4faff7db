// Access: may somebody do something, and by which rule; all rules; users and quotas.

import { get, getWanted, session } from "../api.js";
import { badge, field, fill, h, problem, select, table } from "../dom.js";
import { number } from "../format.js";
import { addRule, entityText, removeButton, removeRule, removeUser, setPassword, setQuota, words } from "./access_changes.js";

export async function show(main, params, scope) {
  const operations = await get("acls/operations", null, scope.signal);
  const rules = h("div", { class: "grow" });
  const people = h("div");
  fill(
    main,
    h("div", { class: "page-head" }, h("h1", null, "Access")),
    h(
      "div",
      { class: "stack" },
      h("section", { class: "card" }, h("h2", null, "May somebody do something?"), checkForm(operations, scope)),
      h("section", { class: "card" }, h("h2", null, "Rules"), rules),
      people,
    ),
  );
  await Promise.all([drawRules(rules, operations, scope), drawPeople(people, scope)]);
}

function checkForm(operations, scope) {
  const principal = h("input", { type: "text", placeholder: "User:alice", required: true, spellcheck: "false" });
  const type = select(Object.keys(operations).map((each) => [each, words(each)]), "TOPIC");
  const operation = h("select");
  const name = h("input", { type: "text", placeholder: "orders", spellcheck: "false" });
  const host = h("input", { type: "text", placeholder: "127.0.0.1", spellcheck: "false", size: 14 });
  const answer = h("div", { role: "status", class: "answer" });
  const nameField = field("Name", name);
  const adjust = () => {
    fill(operation, operations[type.value].map((each) => h("option", { value: each }, words(each))));
    nameField.hidden = type.value === "CLUSTER";
  };
  type.addEventListener("change", adjust);
  adjust();
  const asked = () => ({ principal: principal.value, type: type.value, operation: operation.value, name: name.value, host: host.value });
  for (const input of [principal, type, operation, name, host]) input.addEventListener("input", () => fill(answer));
  return h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          const told = await getWanted("acls/check", asked, scope.signal);
          fill(
            answer,
            h("p", null, badge(told.allowed ? "yes" : "no", told.allowed ? "good" : "bad"), " ", told.reason, "."),
            h("p", { class: "quiet small" }, told.note),
          );
        } catch (error) {
          if (error.name !== "AbortError") fill(answer, h("p", { class: "form-trouble" }, error.message));
        }
      },
    },
    h(
      "div",
      { class: "bar fields" },
      field("Who", principal),
      field("May", operation),
      field("On", type),
      nameField,
      field("From host", host),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Ask the rules")),
    ),
    answer,
  );
}

/** The last column, for those who may change something. */
const changes = (cell) => (session.writes ? [{ title: "Change", cell }] : []);
const opens = (text, action) => (session.writes ? h("button", { type: "button", onclick: action }, text) : null);

async function drawRules(box, operations, scope) {
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter rules" });
  filter.dataset.filter = "";
  const body = h("div");
  const load = async () => {
    try {
      const told = await getWanted("acls", () => ({ filter: filter.value }), scope.signal);
      const titles = ["Principal", "Rule", "Operation", "Resource", "Pattern", "Name", "Host"];
      fill(
        body,
        table(
          "Rules",
          [...titles.map((title, index) => ({
            title,
            class: index === 0 || index > 4 ? "mono" : "",
            cell: (row) => (index === 1 ? badge(words(row[1]), row[1] === "DENY" ? "bad" : "good") : index > 1 && index < 5 ? words(row[index]) : row[index]),
          })), ...changes((row) => removeButton(`the rule of ${row[0]} for ${row[2]} on ${row[5]}`, () => removeRule(row, load)))],
          told.rows,
          { empty: filter.value ? "No rule fits." : "There are no rules." },
        ),
      );
    } catch (error) {
      if (error.name !== "AbortError") {
        // Without an authorizer there is nothing to be asked: that is no failure of the page.
        fill(body, error.code === "SECURITY_DISABLED" ? h("p", { class: "empty" }, "The cluster has no authorizer: everybody may do everything.") : problem(error, load));
      }
    }
  };
  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, 150);
  });
  scope.onEnd(() => clearTimeout(timer));
  fill(box, h("div", { class: "bar" }, filter, h("div", { class: "spacer" }), opens("Add a rule", () => addRule(operations, load))), body);
  await load();
}

async function drawPeople(box, scope) {
  const told = await get("users", null, scope.signal);
  const again = () => drawPeople(box, scope);
  const hidden = (text) => h("p", { class: "quiet" }, `They cannot be seen: ${text}`);
  fill(
    box,
    h(
      "div",
      { class: "stack halves" },
      h(
        "section",
        { class: "card" },
        h("h2", null, "Users who log in by SCRAM"),
        told.users_problem ? null : h("div", { class: "bar" }, opens("Set a password", () => setPassword(told.users, again))),
        told.users_problem
          ? hidden(told.users_problem)
          : table(
              "Users",
              [
                { title: "User", class: "name mono", cell: (u) => u.user },
                { title: "Mechanism", cell: (u) => u.mechanism },
                { title: "Iterations", number: true, cell: (u) => number(u.iterations) },
                ...changes((u) => removeButton(`${u.mechanism} of ${u.user}`, () => removeUser(u, told.users, again))),
              ],
              told.users,
              { empty: "There are no such users." },
            ),
      ),
      h(
        "section",
        { class: "card" },
        h("h2", null, "Quotas"),
        told.quotas_problem ? null : h("div", { class: "bar" }, opens("Set a quota", () => setQuota(told.quotas, again))),
        told.quotas_problem
          ? hidden(told.quotas_problem)
          : table(
              "Quotas",
              [
                {
                  title: "Of",
                  class: "mono",
                  cell: (q) => entityText(q.entity),
                },
                {
                  title: "Limits",
                  class: "mono",
                  cell: (q) => Object.entries(q.values).map(([key, value]) => h("div", null, `${key} = ${number(value)}`)),
                },
                ...changes((q) => h("button", { type: "button", class: "plain", "aria-label": `Change the quotas of ${entityText(q.entity)}`, onclick: () => setQuota(told.quotas, again, q) }, "Change")),
              ],
              told.quotas,
              { empty: "There are no quotas." },
            ),
      ),
    ),
  );
}
