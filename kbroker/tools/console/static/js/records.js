// The records of a topic: looked up, filtered, followed live, exported, produced.

import { get, query, session } from "./api.js";
import { openDialog, openForm } from "./dialog.js";
import { copyText, field, fill, h, link, menu, problem, select, tick, toast } from "./dom.js";
import { number, plural, withZone } from "./format.js";
import { LiveTail } from "./live_tail.js";
import { replayRecords } from "./record_copies.js";
import { RecordList } from "./record_list.js";
import { href } from "./router.js";
import { recall, remember } from "./store.js";

const NOT_JSON = "value is not json";

const FILTER_HELP = [
  ["error", "the text is in the key or the value"],
  ['value ~ "not found"', "contains; !~ does not"],
  ["key = order-17", "is equal; != is not"],
  ["$.customer.id = 42", "a member of a JSON value; also < <= > >= ~"],
  ["header.trace = abc", "a header"],
  ["partition = 3, offset > 100", "also timestamp (ms) and size (bytes)"],
  ["value is null", "also: is not null"],
  [NOT_JSON, "cannot be read as JSON; also: is json"],
  ["$.amount is not number", "also: text, boolean, object, array, missing, null"],
  ["key matches ^order-[0-9]+$", "a regular expression (RE2); in quotes: \"(?i)time ?out\", (?i) of any case"],
  ["a and (b or not c)", "and binds closer than or"],
];

export async function showRecords(body, topic, scope, params) {
  const begin = select(
    [["latest", "newest first"], ["earliest", "oldest first"], ["offset", "offset"]],
    params.from ?? (params.at ? "offset" : "latest"),
  );
  const at = h("input", { type: "text", inputmode: "numeric", pattern: "[0-9]*", placeholder: "0" });
  at.value = params.at ?? "";
  const range = select(
    [["", "any time"], ["-5m", "last 5 minutes"], ["-1h", "last hour"], ["today", "today"], ["-7d", "last 7 days"], ["times", "between …"]],
    "",
  );
  const since = h("input", { type: "datetime-local", step: "1" });
  const until = h("input", { type: "datetime-local", step: "1" });
  const partitions = h("input", { type: "text", placeholder: "all", size: 6, pattern: "[0-9,\\s\\-]*" });
  partitions.value = params.partitions ?? "";
  const filter = h("input", { type: "search", class: "wide", placeholder: "text, or $.customer.id = 42", spellcheck: "false" });
  filter.dataset.filter = "";
  if (params.broken) filter.value = NOT_JSON;
  const perKey = tick("latest per key", false);
  const uncommitted = tick("also uncommitted", false);
  const read = h("button", { type: "submit", class: "primary" }, "Read");
  const live = h("button", { type: "button", onclick: () => startLive() }, "Live");
  const help = h("button", { type: "button", class: "plain", onclick: () => showFilterHelp(filter), "aria-label": "How to filter" }, "?");
  const status = h("div", { class: "status", role: "status" });
  const liveBar = h("div", { class: "live-bar", hidden: true });
  const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => load(true) }, "More");
  const list = new RecordList(topic, scope);
  const spark = h("button", { type: "button", disabled: true, onclick: () => showSpark(page.spark) }, "Code for Spark");
  const atField = field("At offset", at);
  const sinceField = field("Since", since);
  const untilField = field("Until", until);
  let tail = null;
  let page = null;
  let opened = false; // the record that a link has led to
  let abort = new AbortController();
  scope.onEnd(() => {
    abort.abort();
    tail?.end();
  });

  const limits = () => {
    if (range.value === "today") return { since: new Date(new Date().setHours(0, 0, 0, 0)).toISOString() };
    if (range.value !== "times") return { since: range.value };
    return { since: since.value && withZone(since.value), until: until.value && withZone(until.value) };
  };
  const asked = () => ({
    topic: topic.name,
    from: begin.value,
    at: begin.value === "offset" ? at.value : "",
    ...limits(),
    partitions: partitions.value.replace(/\s/g, ""),
    filter: filter.value,
    latest_per_key: perKey.input.checked,
    uncommitted: uncommitted.input.checked,
  });
  const adjust = () => {
    atField.hidden = begin.value !== "offset";
    sinceField.hidden = untilField.hidden = range.value !== "times";
  };
  for (const choice of [begin, range]) choice.addEventListener("change", adjust);
  adjust();

  const load = async (goOn) => {
    if (scope.over) return; // an import may be done long after
    stopLive();
    abort.abort();
    abort = new AbortController();
    const mine = abort;
    fill(status, "Reading …");
    more.hidden = true;
    try {
      const told = await get("records", { ...asked(), goon: goOn ? page.goon : "", seen: goOn ? page.seen : "" }, abort.signal);
      page = told;
      list.masked = told.masked;
      if (goOn) list.append(told.rows);
      else list.show(told.rows);
      more.hidden = told.finished;
      fill(more, told.rows.length || !filter.value ? "More" : "Look further");
      fill(
        status,
        describe(told, list.count, filter.value),
        told.finished && !list.count ? elsewhere() : null,
        told.notes.map((text) => h("div", { class: "note" }, text)),
        told.held.length ? heldNote(topic.name, told.held) : null,
      );
      if (params.open && !opened) list.openFirst();
      opened = true;
      spark.disabled = false;
    } catch (error) {
      if (error.name === "AbortError" || mine.signal.aborted) return;
      fill(status);
      list.tell(problem(error, () => load(goOn)));
    }
  };

  /** Where records may be when none is in what was asked for; nothing if all was. */
  const elsewhere = () => {
    const parts = [
      asked().partitions ? "in other partitions" : "",
      begin.value === "offset" ? "before that place" : "",
      range.value ? "at another time" : "",
    ].filter(Boolean);
    if (!parts.length) return null;
    const everywhere = () => {
      begin.value = "earliest";
      partitions.value = range.value = "";
      adjust();
      load(false);
    };
    return h(
      "div",
      { class: "note" },
      `There may be some ${parts.join(", or ")}. `,
      h("button", { type: "button", class: "plain link", onclick: everywhere }, "Read the whole topic"),
    );
  };

  const stopLive = () => {
    tail?.end();
    tail = null;
    liveBar.hidden = true;
    live.hidden = false;
  };
  const startLive = () => {
    abort.abort();
    tail?.end();
    more.hidden = true;
    live.hidden = true;
    liveBar.hidden = false;
    fill(status);
    list.show([]);
    tail = new LiveTail({
      params: asked(),
      bar: liveBar,
      list,
      onStop: () => {
        stopLive();
        load(false);
      },
    });
    tail.start();
  };

  topic.reload = () => load(false); // for what is done to the topic from elsewhere in the page
  const exportLink = (format, text) =>
    h(
      "button",
      {
        type: "button",
        onclick: async () => {
          try {
            // A browser tells of a file that is refused that it has failed, and not why.
            await get("records/export", { ...asked(), format, check: true }, scope.signal);
          } catch (error) {
            if (error.name !== "AbortError") toast(`Nothing is exported: ${error.message}`, "bad");
            return;
          }
          // A link that is clicked for the reader: the file comes without the page being left.
          const name = [...crypto.getRandomValues(new Uint8Array(8))].join("-");
          const made = h("a", { href: query("records/export", { ...asked(), format, export: name }), download: "" });
          made.click();
          watchExport(name, scope);
        },
      },
      text,
    );
  const fold = h("button", { type: "button", class: "fold plain", onclick: () => form.classList.toggle("open") }, "From, range …");
  const form = h(
    "form",
    {
      class: "records-form card bar fields",
      onsubmit: (event) => {
        event.preventDefault();
        if (tail) startLive();
        else load(false);
      },
    },
    field("From", begin),
    atField,
    field("Range", range),
    sinceField,
    untilField,
    field("Partitions", partitions),
    h("div", { class: "field grow" }, filterLabel(filter, help, savedFilters(filter), fold), filter),
    h(
      "div",
      { class: "buttons" },
      read,
      live,
      menu("View", perKey.element, uncommitted.element, h("button", { type: "button", onclick: () => list.chooseColumns() }, "Columns")),
      menu(
        "Export",
        exportLink("json", "Export JSON lines"),
        exportLink("csv", "Export CSV"),
        exportLink("parquet", "Export Parquet"),
        spark,
        session.writes ? h("button", { type: "button", onclick: () => replayRecords(topic.name, asked()) }, "Replay") : null,
      ),
    ),
  );
  fill(
    body,
    form,
    liveBar,
    status,
    list.element,
    more,
  );
  await load(false);
}

/** Tell why an export has broken off: of that the browser says only that it has. */
function watchExport(name, scope) {
  let unknown = 0; // answers before the console has heard of it
  const timer = setInterval(async () => {
    try {
      const { outcome } = await get("records/export/outcome", { export: name }, scope.signal);
      if (outcome === "" || (outcome === null && (unknown += 1) < 10)) return;
      clearInterval(timer);
      if (outcome && outcome !== "done") toast(`The file is not whole: ${outcome}`, "bad");
    } catch {
      clearInterval(timer);
    }
  }, 2000);
  scope.onEnd(() => clearInterval(timer));
}

function filterLabel(filter, ...buttons) {
  filter.id = "record-filter";
  return h("div", { class: "label-row" }, h("label", { for: filter.id }, "Filter"), buttons);
}

function describe(told, count, filtered) {
  const scanned = `${plural(told.scanned, "record")} read in ${number(told.milliseconds)} ms`;
  const what = count ? `${plural(count, "record")} shown` : filtered ? "No record fits" : "No record is there";
  const left = told.finished ? "" : " – there are more";
  return `${what} (${scanned})${left}.${told.masked ? " Parts of them are masked." : ""}`;
}

/** What readers of committed records do not get, and a link to why. */
function heldNote(name, held) {
  const waiting = held.reduce((sum, each) => sum + each.end - each.stable, 0);
  const where = held.length > 4 ? plural(held.length, "partition") : held.map((each) => `${name}-${each.partition} from offset ${number(each.stable)}`).join(", ");
  return h(
    "div",
    { class: "note" },
    `${plural(waiting, "offset is", "offsets are")} held back from readers of committed records until a transaction has ended: ${where}. `,
    link("See which one", href("topic", { name, tab: "groups" })),
    ", or tick “also uncommitted” to read them.",
  );
}

/** Filters that have names in this browser: taken, saved, forgotten. */
function savedFilters(filter) {
  const list = h("div");
  const draw = () => {
    const saved = recall("filters", {});
    const change = (changed) => {
      remember("filters", changed);
      draw();
    };
    const line = ([name, text]) => [
      h("button", { type: "button", title: text, onclick: () => ((filter.value = text), filter.form.requestSubmit()) }, name),
      h("button", { type: "button", class: "plain", "aria-label": `Forget ${name}`, onclick: () => change({ ...saved, [name]: undefined }) }, "✕"),
    ];
    const save = () => {
      const name = h("input", { type: "text", required: true, maxlength: 60 });
      openForm("Save the filter", {
        action: "Save",
        fields: [h("pre", { class: "code", tabindex: "0" }, filter.value), field("Name", name)],
        send: async () => change({ ...saved, [name.value.trim()]: filter.value }),
      });
    };
    const entries = Object.entries(saved);
    fill(
      list,
      h("div", { class: "saved" }, entries.map(line)),
      filter.value.trim() ? h("button", { type: "button", onclick: save }, "Save this filter") : entries.length ? null : h("p", { class: "quiet small" }, "No filter is saved. Write one first."),
    );
  };
  const made = menu("Saved", list);
  made.addEventListener("beforetoggle", draw, { capture: true });
  return made;
}

/** The examples; one that is chosen is put into the field. */
function showFilterHelp(filter) {
  openDialog("How to filter", (close) => {
    const take = (text) => {
      filter.value = text;
      close();
      filter.focus();
    };
    const example = (text) =>
      h("button", { type: "button", class: "plain link", title: "Put it into the field", onclick: () => take(text) }, h("code", null, text));
    return h("dl", { class: "examples" }, FILTER_HELP.map(([text, what]) => [h("dt", null, example(text)), h("dd", null, what)]));
  });
}

function showSpark(code) {
  openDialog(
    "Code for Spark",
    () => [
      h("p", { class: "quiet" }, "Reads what the page shows, as a batch and as a stream. The filter is not part of it."),
      h("pre", { class: "code", tabindex: "0" }, code),
      h(
        "div",
        { class: "actions" },
        h(
          "button",
          {
            type: "button",
            class: "primary",
            onclick: () => copyText(code),
          },
          "Copy",
        ),
      ),
    ],
    { wide: true },
  );
}
