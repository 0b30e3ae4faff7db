// Elements are made here and nowhere else. Text only ever becomes text: nothing is parsed as HTML.

import { waitsForRelease } from "../explorer/elements.js";

/** An element. `on…` attributes are listeners; true is an attribute without value; null and false are left out. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Put other children in place of an element's own. */
export function fill(element, ...children) {
  const made = document.createDocumentFragment();
  add(made, children);
  element.replaceChildren(made);
  return element;
}

const nameOf = (element) => `${element.tagName} ${element.getAttribute("aria-label") ?? element.textContent}`;

/** As `fill`, of something that is shown anew now and then: focus and places of scrolling stay where they were.
 * While the reader has text of it selected, or a detail open, nothing is changed. */
export function refill(element, ...children) {
  if (waitsForRelease(element, () => refill(element, ...children))) return;
  const selection = getSelection();
  if (selection && !selection.isCollapsed && element.contains(selection.anchorNode)) return;
  if (element.querySelector("details[open]")) return;
  const places = [...element.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const name = active && nameOf(active);
  const alike = () => [...element.querySelectorAll(active.tagName)].filter((each) => nameOf(each) === name);
  const index = active ? alike().indexOf(active) : -1;
  fill(element, ...children);
  [...element.querySelectorAll(".scroll")].forEach((box, at) => {
    if (places[at]) [box.scrollLeft, box.scrollTop] = places[at];
  });
  const again = active && (alike()[index] ?? alike()[0]);
  if (!again) return;
  if (active.tabIndex < 0) again.tabIndex = -1; // the heading of a page that has just been entered
  again.focus({ preventScroll: true });
}

let lastId = 0;
/** An id that nothing else has. */
export const freshId = (prefix) => `${prefix}-${++lastId}`;

/** A field with its label above. */
export function field(label, input, hint) {
  input.id ||= freshId("field");
  const told = hint ? h("span", { class: "hint", id: freshId("hint") }, hint) : null;
  if (told) input.setAttribute("aria-describedby", told.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, told);
}

/** A choice: options are [value, text] pairs. */
export function select(options, value, attributes) {
  const made = h("select", attributes, options.map(([key, text]) => h("option", { value: key }, text)));
  made.value = value;
  return made;
}

/** A box to tick, with its label behind. */
export function tick(label, checked, attributes) {
  const input = h("input", { type: "checkbox", id: freshId("tick"), ...attributes });
  input.checked = checked;
  return { input, element: h("div", { class: "tick" }, input, h("label", { for: input.id }, label)) };
}

/** The classes of a column: `number` is aligned at its end, `minor` is not on a phone, `roomy` is where there is much room. */
export const classOf = (column) => [column.number ? "number" : "", column.class ?? ""].join(" ").trim() || null;

/** A table of rows that are all there. Columns: {title, number, class, cell(row)}. With `isStacked` a row is a card on a phone. */
export function table(label, columns, rows, { empty = "There is nothing here.", rowClass, isStacked = false } = {}) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      { "aria-label": label, class: isStacked ? "stacked" : null },
      h("thead", null, h("tr", null, columns.map((c) => h("th", { scope: "col", class: classOf(c) }, c.title)))),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h("tr", { class: rowClass?.(row) }, columns.map((c) => h("td", { class: classOf(c) }, c.cell(row)))),
        ),
      ),
    ),
  );
}

/** A word in a colour of its own: good, warn, bad or quiet. */
export const badge = (text, kind = "quiet") => h("span", { class: `badge ${kind}` }, text);

/** A link into the page. */
export const link = (text, href, attributes) => h("a", { href, ...attributes }, text);

/** A button that opens a list of further ones, or of boxes to tick. */
export function menu(text, ...items) {
  const list = h("div", { class: "menu", popover: "auto", id: freshId("menu") }, items);
  const button = h("button", { type: "button", class: "menu-button", popovertarget: list.id }, text);
  list.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "open") return;
    const place = button.getBoundingClientRect();
    list.style.top = `${place.bottom + 4}px`;
    if (place.left + 240 < innerWidth) [list.style.left, list.style.right] = [`${place.left}px`, "auto"];
    else [list.style.left, list.style.right] = ["auto", `${document.documentElement.clientWidth - place.right}px`];
  });
  list.addEventListener("click", (event) => event.target.closest("button") && list.hidePopover());
  return h("span", { class: "menu-place" }, button, list);
}

export const copyText = (text) => navigator.clipboard.writeText(text).then(() => toast("copied"), () => toast("it cannot be copied", "bad"));

/** An error that stands where content should be. */
export function problem(error, again) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", null, h("strong", null, "This could not be shown. "), String(error.message ?? error)),
    again ? h("button", { type: "button", onclick: again }, "Try again") : null,
  );
}

/** A line that passes: what has been done, or why not. */
export function toast(text, kind = "good") {
  const line = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), 6000);
}
