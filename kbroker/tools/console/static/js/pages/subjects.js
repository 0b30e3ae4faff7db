// The subjects of the schema registry: a list of any length, and a new one.

import { get, session } from "../api.js";
import { fill, h, link, problem } from "../dom.js";
import { number, plural } from "../format.js";
import { PagedTable } from "../paged_table.js";
import { href, note } from "../router.js";
import { KINDS, registerSchema } from "./subject.js";

export async function show(main, params, scope) {
  const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter subjects by name" });
  filter.dataset.filter = "";
  filter.value = params.filter ?? "";
  const count = h("span", { class: "quiet", role: "status" });
  const table = new PagedTable({
    label: "Subjects",
    empty: () => (filter.value ? "No subject fits." : "There are no subjects yet: a program registers them with its first record, or you do here."),
    columns: [
      { title: "Subject", class: "name", cell: (s) => link(s.subject, href("subject", { name: s.subject }), { title: s.subject }) },
      { title: "Type", cell: (s) => KINDS[s.kind] ?? s.kind },
      { title: "Latest version", number: true, cell: (s) => number(s.version) },
      { title: "Id", number: true, class: "minor", cell: (s) => s.id },
      { title: "Topic", class: "minor", cell: (s) => (s.topics.length ? s.topics.map((name) => link(name, href("topic", { name }))) : "–") },
    ],
    onTotal: (told) => fill(count, `${plural(told.total, "subject")}, compatibility ${told.level}`),
    load: (offset, limit) => get("subjects", { filter: filter.value, offset, limit }, scope.signal),
  });
  const body = h("div", { class: "grow" }, table.element);
  const draw = () => {
    note("subjects", { filter: filter.value });
    return table.reload().then(() => fill(body, table.element), (error) => error.name === "AbortError" || fill(body, problem(error, draw)));
  };
  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(draw, 150);
  });
  scope.onEnd(() => {
    clearTimeout(timer);
    table.end();
  });
  fill(
    main,
    h("div", { class: "page-head" }, h("h1", null, "Schemas"), h("div", { class: "spacer" }), session.writes ? h("button", { type: "button", class: "primary", onclick: () => registerSchema() }, "New subject") : null),
    h("div", { class: "bar" }, filter, h("div", { class: "spacer" }), count),
    body,
  );
  await draw();
}
