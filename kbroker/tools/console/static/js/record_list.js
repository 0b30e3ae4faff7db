// Records as rows; one that is opened shows all of itself below.

import { get } from "./api.js";
import { badge, fill, freshId, h, problem, toast } from "./dom.js";
import { bytes, moment, number } from "./format.js";

const HEADS = [["Time", ""], ["Partition", "number"], ["Offset", "number"], ["Key", ""], ["Value", ""]];

export class RecordList {
  constructor(topic, scope) {
    this.topic = topic;
    this.scope = scope;
    this.count = 0;
    this.body = h("tbody");
    this.message = h("div", { class: "empty" });
    this.element = h(
      "div",
      { class: "scroll records", tabindex: "0", role: "region", "aria-label": "Records", onkeydown: (e) => this.#key(e) },
      h(
        "table",
        { "aria-label": "Records" },
        h("thead", null, h("tr", null, HEADS.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
        this.body,
      ),
      this.message,
    );
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
    this.body.prepend(h("tr", { class: "gap" }, h("td", { colspan: HEADS.length }, content)));
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
    this.body.querySelector("tr[data-record] td.time")?.click();
  }

  #row(record, isOdd = false) {
    const place = `${record.partition}:${record.offset}`;
    const button = h(
      "button",
      {
        type: "button",
        class: "open",
        "aria-expanded": "false",
        "aria-label": `Record ${record.offset} of partition ${record.partition}, ${moment(record.timestamp)}`,
      },
      moment(record.timestamp),
    );
    const row = h(
      "tr",
      { "data-record": place },
      h("td", { class: "time" }, button),
      h("td", { class: "number" }, record.partition),
      h("td", { class: "number" }, number(record.offset)),
      h("td", { class: "mono key" }, part(record.key)),
      h("td", { class: "mono value" }, isOdd ? [badge("not JSON", "warn"), " "] : null, part(record.value)),
    );
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
    const detail = h("tr", { class: "detail" }, h("td", { colspan: HEADS.length }, inner));
    row.after(detail);
    button.setAttribute("aria-expanded", "true");
    try {
      const { partition, offset } = record;
      drawRecord(inner, await get("record", { topic: this.topic, partition, offset }, this.scope.signal));
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
      return shown.text === "" ? h("span", { class: "null" }, "empty") : [shown.text, shown.cut ? "…" : ""];
  }
}

/** All of one record. */
function drawRecord(inner, record) {
  const facts = [
    ["Timestamp", `${moment(record.timestamp)} (${record.timestamp_type}, ${record.timestamp} ms)`],
    ["Partition, offset", `${record.partition}, ${record.offset}`],
    ["Sizes", `key ${bytes(record.key.size)}, value ${bytes(record.value.size)}`],
  ];
  fill(
    inner,
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
  if (shown.pretty !== undefined) views.JSON = () => shown.pretty;
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
  const copy = h(
    "button",
    {
      type: "button",
      class: "plain",
      onclick: () => navigator.clipboard.writeText(text.textContent).then(() => toast("copied"), () => toast("it cannot be copied", "bad")),
    },
    "Copy",
  );
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
