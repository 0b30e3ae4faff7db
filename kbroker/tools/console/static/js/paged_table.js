// A table of any length: only the rows in sight exist, and pages of them are asked for as they come into sight.

import { waitsForRelease } from "../explorer/elements.js";
import { classOf, fill, h } from "./dom.js";

const PAGE = 100;
const BEYOND = 12;
const AT_ONCE = 2; // pages that are asked for at a time: of a long scroll only those in sight at its end

/**
 * Columns: {title, sort, number, cell(row)}. `load(offset, limit, order)` gives {total, rows}.
 * `order`: {sort, descending}, changed by the heads of columns that can be sorted by.
 */
export class PagedTable {
  constructor({ label, columns, load, order, rowHeight = 34, empty = () => "There is nothing here.", onTotal }) {
    this.columns = columns;
    this.load = load;
    this.order = order ?? {};
    this.rowHeight = rowHeight;
    this.empty = empty;
    this.onTotal = onTotal;
    this.total = null;
    this.pages = new Map();
    this.generation = 0;
    this.asking = 0;
    this.body = h("tbody");
    this.head = h("tr");
    this.table = h("table", { class: "paged", "aria-label": label }, h("thead", null, this.head), this.body);
    this.message = h("div", { class: "empty", hidden: true });
    this.element = h(
      "div",
      { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label, onkeydown: (e) => this.#key(e) },
      this.table,
      this.message,
    );
    this.element.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.resized = new ResizeObserver(() => this.#soon());
    this.resized.observe(this.element);
    this.#drawHead();
  }

  end() {
    this.generation += 1;
    this.resized.disconnect();
  }

  /** Ask anew; `keep` leaves the place and what is shown until the answer is there. */
  async reload({ keep = false } = {}) {
    const generation = ++this.generation;
    if (!keep) this.element.scrollTop = 0;
    const first = keep ? Math.floor(Math.floor(this.element.scrollTop / this.rowHeight) / PAGE) : 0;
    const pages = new Map();
    const wanted = keep ? [first, first + 1] : [0];
    for (const page of wanted) {
      if (page > 0 && page * PAGE >= (this.total ?? 0)) continue;
      const answer = await this.load(page * PAGE, PAGE, this.order);
      if (generation !== this.generation) return;
      pages.set(page, answer.rows);
      this.#setTotal(answer);
    }
    this.pages = pages;
    this.#draw(true);
  }

  #setTotal(answer) {
    this.total = answer.total;
    this.table.setAttribute("aria-rowcount", String(answer.total + 1));
    this.onTotal?.(answer);
  }

  #soon() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#draw();
    });
  }

  #drawHead() {
    fill(
      this.head,
      this.columns.map((column) => {
        const sorted = column.sort && this.order.sort === column.sort;
        const direction = this.order.descending ? "descending" : "ascending";
        return h(
          "th",
          { scope: "col", class: classOf(column), "aria-sort": sorted ? direction : null },
          column.sort
            ? h(
                "button",
                { type: "button", class: "sort", onclick: () => this.#sortBy(column) },
                column.title,
                h("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (this.order.descending ? "▼" : "▲") : ""),
              )
            : column.title,
        );
      }),
    );
  }

  #sortBy(column) {
    const same = this.order.sort === column.sort;
    this.order = { sort: column.sort, descending: same ? !this.order.descending : Boolean(column.number) };
    this.#drawHead();
    this.head.querySelectorAll("button")[this.columns.filter((c) => c.sort).indexOf(column)]?.focus();
    this.reload().catch((error) => this.#tell(error.message));
  }

  #tell(text) {
    this.message.textContent = text;
    this.message.hidden = !text;
  }

  #draw(always = false) {
    if (this.total === null) return;
    if (always && waitsForRelease(this.body, () => this.#draw(true))) return;
    const height = this.element.clientHeight || 600;
    const first = Math.max(Math.floor(this.element.scrollTop / this.rowHeight) - BEYOND, 0);
    const last = Math.min(first + Math.ceil(height / this.rowHeight) + 2 * BEYOND, this.total);
    this.#tell(this.total ? "" : this.empty());
    this.table.hidden = !this.total;
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) this.#want(page);
    const key = `${first}:${last}:${this.generation}:${[...this.pages.keys()].join()}`;
    if (key === this.drawn && !always) return;
    this.drawn = key;
    const focused = document.activeElement?.closest?.("tr")?.getAttribute("aria-rowindex");
    const inside = focused && this.body.contains(document.activeElement);
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const row = this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
      rows.push(this.#row(index, row));
    }
    fill(this.body, this.#space(first), rows, this.#space(this.total - last));
    if (inside) this.body.querySelector(`tr[aria-rowindex="${focused}"] a`)?.focus({ preventScroll: true });
  }

  #row(index, row) {
    return h(
      "tr",
      { "aria-rowindex": index + 2 },
      this.columns.map((column) =>
        h("td", { class: classOf(column) }, row ? column.cell(row) : h("span", null, "…")),
      ),
    );
  }

  #space(rows) {
    if (rows <= 0) return null;
    const cell = h("td", { colspan: this.columns.length });
    cell.style.height = `${rows * this.rowHeight}px`;
    return h("tr", { class: "space", "aria-hidden": "true" }, cell);
  }

  async #want(page) {
    if (this.pages.has(page) || this.asking >= AT_ONCE) return;
    this.pages.set(page, undefined);
    this.asking += 1;
    const generation = this.generation;
    try {
      const answer = await this.load(page * PAGE, PAGE, this.order).finally(() => (this.asking -= 1));
      if (generation !== this.generation) return this.#soon();
      this.pages.set(page, answer.rows);
      this.#setTotal(answer);
      // What is far away is forgotten, so that a long scroll does not fill the memory.
      if (this.pages.size > 40) {
        for (const known of [...this.pages.keys()]) if (Math.abs(known - page) > 15) this.pages.delete(known);
      }
      this.#draw(true); // asks for those in sight that had to wait, too
    } catch (error) {
      if (error.name !== "AbortError") this.pages.delete(page);
    }
  }

  /** Arrows go from row to row. */
  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    const row = document.activeElement?.closest?.("tr[aria-rowindex]");
    const target = row
      ? this.body.querySelector(`tr[aria-rowindex="${Number(row.getAttribute("aria-rowindex")) + step}"] a`)
      : step > 0
        ? this.body.querySelector("tr[aria-rowindex] a")
        : null;
    if (!target) return;
    event.preventDefault();
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "nearest" });
  }
}
