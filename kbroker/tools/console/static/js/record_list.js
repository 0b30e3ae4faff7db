// Records as rows; one that is opened shows all of itself below.

import { get } from "./api.js";
import { openForm } from "./dialog.js";
import { badge, copyText, field, fill, freshId, h, problem, tick } from "./dom.js";
import { bytes, moment, number, recent, utc, zone, zoned } from "./format.js";
import { coloured, member, paths } from "./json_text.js";
import { recordActions } from "./record_actions.js";
import { recall, remember } from "./store.js";

const LONGEST = 600; // letters of a value in the list: no screen shows more in a line
const LEAST = 56; // pixels of a column
const STEP = 16;

const valueOf = (row) => (row.isOdd ? [badge("not JSON", "warn"), " ", part(row.record.value)] : part(row.record.value));

/** The columns that every topic has; a member of a JSON value ($.customer.id) or a header (header.trace) may join them. */
const OWN = {
  time: { title: "Time", width: 172, cell: ({ record }) => recent(record.timestamp) },
  partition: { title: "Partition", width: 78, number: true, cell: ({ record }) => record.partition },
  offset: { title: "Offset", width: 80, number: true, cell: ({ record }) => number(record.offset) },
  key: { title: "Key", width: 112, class: "mono", cell: ({ record }) => part(record.key) },
  value: { title: "Value", class: "mono value", cell: valueOf },
};

const columnOf = (name) => OWN[name] ?? { title: name, width: 140, class: "mono", cell: ({ record }) => cellOf(name, record) };

function cellOf(name, record) {
  if (name.startsWith("header.")) {
    const found = record.headers.find(([header]) => header === name.slice("header.".length));
    return found ? part(found[1]) : "";
  }
  if (record.value.cut) return h("span", { class: "quiet", title: "The value is too long for the list: open the record." }, "…");
  const found = member(documentOf(record), name);
  return found === undefined ? "" : coloured(JSON.stringify(found));
}

function documentOf(record) {
  try {
    return record.value.kind === "json" ? JSON.parse(record.value.text) : undefined;
  } catch {
    return undefined;
  }
}

export class RecordList {
  constructor(topic, scope) {
    this.topic = topic;
    this.scope = scope;
    this.count = 0;
    this.columns = recall(`columns of ${topic.name}`, Object.keys(OWN));
    this.widths = recall("widths of columns", {});
    this.head = h("tr");
    this.body = h("tbody");
    this.message = h("div", { class: "empty" });
    this.element = h(
      "div",
      { class: "scroll records", tabindex: "0", role: "region", "aria-label": "Records", onkeydown: (e) => this.#key(e) },
      h("table", { "aria-label": "Records" }, h("thead", null, this.head), this.body),
      this.message,
    );
    this.#drawHead();
  }

  #drawHead() {
    const last = this.columns.includes("value") ? "value" : this.columns.at(-1); // has the room that is left
    fill(
      this.head,
      this.columns.map((name) => {
        const column = columnOf(name);
        const title = name === "time" ? h("span", { title: `As it is in ${zone()}` }, `Time, ${zone()}`) : column.title;
        const head = h("th", { scope: "col", class: column.number ? "number" : null }, title, name === last ? null : this.#grip(name));
        if (name !== last) head.style.width = `${this.#width(name)}px`;
        return head;
      }),
    );
  }

  #width(name) {
    return this.widths[name] ?? columnOf(name).width ?? 300;
  }

  /** The end of a column's head: dragged, or moved by arrows, it makes the column wider. */
  #grip(name) {
    const grip = h("span", { class: "grip", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-valuemin": LEAST, "aria-label": `Width of ${columnOf(name).title}` });
    const tell = () => grip.setAttribute("aria-valuenow", this.#width(name));
    const set = (width) => {
      this.widths[name] = Math.max(Math.round(width), LEAST);
      grip.parentElement.style.width = `${this.widths[name]}px`;
      tell();
    };
    const keep = () => remember("widths of columns", this.widths);
    grip.addEventListener("pointerdown", (event) => {
      const begin = this.#width(name) - event.clientX;
      grip.setPointerCapture(event.pointerId);
      grip.onpointermove = (moved) => set(begin + moved.clientX);
      grip.onpointerup = grip.onpointercancel = () => {
        grip.onpointermove = grip.onpointerup = grip.onpointercancel = null;
        keep();
      };
    });
    grip.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
      if (!step) return;
      event.preventDefault();
      set(this.#width(name) + step);
      keep();
    });
    tell();
    return grip;
  }

  /** Choose the columns: those of every record, and what the records that are shown have in their values and headers. */
  chooseColumns() {
    const records = [...this.body.querySelectorAll("tr[data-record]")].map((row) => row.shown.record);
    const found = new Set(this.columns.filter((name) => !OWN[name]));
    for (const record of records.slice(0, 50)) {
      for (const path of paths(documentOf(record)).slice(0, 40)) found.add(path);
      for (const [name] of record.headers) found.add(`header.${name}`);
    }
    const boxes = [...Object.keys(OWN), ...found].map((name) => ({ name, ...tick(OWN[name]?.title ?? name, this.columns.includes(name)) }));
    const other = h("input", { type: "text", spellcheck: "false", placeholder: "$.customer.id", pattern: "\\$.+|header\\..+" });
    openForm("Columns", {
      action: "Show",
      fields: [
        h("fieldset", { class: "ticks" }, h("legend", null, "Shown"), boxes.map((each) => each.element)),
        field("Another", other, "A member of a JSON value, or header.NAME"),
      ],
      send: async () => {
        const chosen = boxes.filter((each) => each.input.checked).map((each) => each.name);
        const wanted = new Set([...chosen, other.value.trim()].filter(Boolean));
        // The value is the last, and has the room that is left.
        this.columns = [...wanted].filter((name) => name !== "value").concat(wanted.has("value") ? "value" : []);
        if (!this.columns.length) this.columns = Object.keys(OWN);
        remember(`columns of ${this.topic.name}`, this.columns);
        this.#drawHead();
        for (const row of [...this.body.children]) {
          if (row.shown) row.replaceWith(this.#row(row.shown.record, row.shown.isOdd));
          else if (row.classList.contains("detail")) row.remove();
          else row.firstElementChild.colSpan = this.columns.length;
        }
      },
    });
  }

  show(rows) {
    this.count = 0;
    fill(this.body);
    this.element.scrollTop = 0;
    this.append(rows);
  }

  append(rows) {
    const odd = oddOnes(rows);
    this.body.append(...rows.map((row) => this.#row(row, odd.has(row))));
    this.count += rows.length;
    fill(this.message, this.count ? "" : "There are no records here.");
    this.message.hidden = this.count > 0;
  }

  /** The newest on top; no more than `most` are kept. Says how many left the list. */
  prepend(rows, most) {
    this.body.prepend(...rows.map((row) => this.#row(row)).reverse());
    this.count += rows.length;
    if (rows.length) this.message.hidden = true;
    return this.#trim(most);
  }

  /** A line among the rows that stands for what is not shown. */
  gap(...content) {
    this.body.prepend(h("tr", { class: "gap" }, h("td", { colspan: this.columns.length }, content)));
  }

  #trim(most) {
    let left = 0;
    while (this.body.childElementCount > most) {
      const last = this.body.lastElementChild;
      left += last.dataset.record ? 1 : 0;
      last.remove();
    }
    return left;
  }

  tell(element) {
    fill(this.body);
    fill(this.message, element);
    this.message.hidden = false;
    this.count = 0;
  }

  /** Open the record on top, to which a link has led. */
  openFirst() {
    this.body.querySelector("tr[data-record]")?.click();
  }

  #row(record, isOdd = false) {
    const shown = { record, isOdd };
    const label = `Record ${record.offset} of partition ${record.partition}, ${moment(record.timestamp)}`;
    let button;
    const open = (content) => (button = h("button", { type: "button", class: "open", "aria-expanded": "false", "aria-label": label }, content));
    const row = h(
      "tr",
      { "data-record": `${record.partition}:${record.offset}` },
      this.columns.map((name, index) => {
        const column = columnOf(name);
        const kind = [name in OWN ? name : "", column.number ? "number" : "", column.class ?? ""].join(" ").trim();
        return h("td", { class: kind }, index ? column.cell(shown) : open(column.cell(shown)));
      }),
    );
    row.shown = shown;
    row.addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      this.#toggle(row, button, record);
    });
    return row;
  }

  async #toggle(row, button, record) {
    const next = row.nextElementSibling;
    if (next?.classList.contains("detail")) {
      next.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    const inner = h("div", { class: "detail-inner" }, h("p", { class: "quiet" }, "Reading …"));
    const detail = h("tr", { class: "detail" }, h("td", { colspan: this.columns.length }, inner));
    row.after(detail);
    button.setAttribute("aria-expanded", "true");
    try {
      const { partition, offset } = record;
      const whole = await get("record", { topic: this.topic.name, partition, offset }, this.scope.signal);
      drawRecord(inner, { ...whole, masked: this.masked }, this.topic, this.scope);
    } catch (error) {
      if (error.name !== "AbortError") fill(inner, problem(error));
    }
  }

  /** Arrows go from record to record. */
  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    const buttons = [...this.body.querySelectorAll("button.open")];
    const at = buttons.indexOf(document.activeElement);
    if (at < 0 && document.activeElement !== this.element) return;
    const target = buttons[at < 0 ? 0 : at + step];
    if (!target) return;
    event.preventDefault();
    target.focus();
  }
}

/** The records whose values are no JSON, where nearly all others are: what breaks a consumer may be one of them. */
function oddOnes(rows) {
  const values = rows.filter((row) => !["null", "masked"].includes(row.value.kind));
  const odd = values.filter((row) => row.value.kind !== "json" && !row.value.error && !row.value.cut && !isJson(row.value));
  return new Set(values.length >= 5 && odd.length * 5 <= values.length ? odd : []);
}

function isJson(shown) {
  try {
    JSON.parse(shown.text); // a number or a text alone: the server calls only objects and arrays so
    return shown.kind === "text";
  } catch {
    return false;
  }
}

const inColour = (shown, most) => (shown.kind === "json" ? coloured(shown.text.slice(0, most)) : shown.text.slice(0, most));

/** A key or a value in one line. */
function part(shown) {
  switch (shown.kind) {
    case "null":
      return h("span", { class: "null" }, "null");
    case "masked":
      return h("span", { class: "masked", title: "masked by a rule of this console" }, shown.text);
    case "binary":
      return [badge(shown.error ? "not decoded" : "bytes"), " ", shown.text, shown.cut ? "…" : ""];
    default:
      return shown.text === "" ? h("span", { class: "null" }, "empty") : [inColour(shown, LONGEST), shown.cut || shown.text.length > LONGEST ? "…" : ""];
  }
}

/** All of one record. */
function drawRecord(inner, record, topic, scope) {
  const facts = [
    [record.timestamp_type, `${zoned(record.timestamp)}, in ms ${record.timestamp}`],
    ["UTC", utc(record.timestamp)],
    ["Partition, offset", `${record.partition}, ${record.offset}`],
    ["Sizes", `key ${bytes(record.key.size)}, value ${bytes(record.value.size)}`],
  ];
  fill(
    inner,
    recordActions(topic, record, scope),
    h("dl", { class: "facts" }, facts.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))),
    record.headers.length
      ? h(
          "div",
          null,
          h("h2", { class: "minor" }, "Headers"),
          h(
            "dl",
            { class: "headers mono" },
            record.headers.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, part(value)))),
          ),
          record.more_headers ? h("p", { class: "quiet" }, `and ${number(record.more_headers)} more`) : null,
        )
      : null,
    whole("Key", record.key),
    whole("Value", record.value),
  );
}

/** A key or value in full: as JSON, text or bytes, whichever is chosen. */
function whole(title, shown) {
  if (shown.kind === "null" || shown.kind === "masked") return h("div", null, h("h2", { class: "minor" }, title), part(shown));
  const views = {};
  if (shown.pretty !== undefined) views.JSON = () => coloured(shown.pretty);
  if (shown.kind !== "binary") views.Text = () => shown.text + (shown.cut ? "\n… cut here" : "");
  views.Hex = () => hexDump(shown.hex) + (shown.hex_cut ? "\n… cut here" : "");
  const text = h("pre", { class: "code", tabindex: "0", "aria-label": title });
  const buttons = h("div", { class: "segments", role: "group", "aria-label": `How the ${title.toLowerCase()} is shown` });
  const choose = (name) => {
    fill(text, views[name]());
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.textContent === name));
  };
  fill(
    buttons,
    Object.keys(views).map((name) => h("button", { type: "button", onclick: () => choose(name) }, name)),
  );
  const copy = h("button", { type: "button", class: "plain", onclick: () => copyText(text.textContent) }, "Copy");
  text.id = freshId("part");
  choose(Object.keys(views)[0]);
  const schema = shown.schema ? h("p", { class: "quiet" }, schemaOf(shown)) : null;
  const broken = shown.not_json ? h("p", { class: "warn-text" }, `It begins like JSON and is none: ${shown.not_json}.`) : null;
  return h("div", null, h("div", { class: "part-head" }, h("h2", { class: "minor" }, title), buttons, copy), schema, broken, text);
}

/** By which schema a part is decoded, or why it is not. */
function schemaOf(shown) {
  const { id, type } = shown.schema;
  const kind = { AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON Schema" }[type] ?? "of an unknown kind";
  return shown.error ? `Not decoded by schema ${id}: ${shown.error}.` : `Schema ${id}, ${kind}`;
}

/** Sixteen bytes a line: where, in hexadecimal, and as text. */
function hexDump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g) ?? [];
    const letters = pairs.map((pair) => {
      const code = Number.parseInt(pair, 16);
      return code > 31 && code < 127 ? String.fromCharCode(code) : ".";
    });
    const left = pairs.slice(0, 8).join(" ");
    const right = pairs.slice(8).join(" ");
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${left.padEnd(23)}  ${right.padEnd(23)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}
