// A partition's log, to look into: batches, the bytes of one with their names, producers, and files where they are here.

import { get } from "./api.js";
import { badge, field, fill, h, problem, select, table } from "./dom.js";
import { bytes, duration, moment, number, plural } from "./format.js";
import { note } from "./router.js";

const hex = (text, most = 8) => {
  const parts = text.match(/../g) ?? [];
  return parts.slice(0, most).join(" ") + (parts.length > most ? " …" : "");
};

export async function showLog(body, topic, scope, params) {
  const partitions = topic.partitions.map((each) => [String(each.partition), `partition ${each.partition}`]);
  const known = partitions.some(([key]) => key === params.partition);
  const partition = select(partitions, known ? params.partition : partitions[0][0], { "aria-label": "Partition" });
  const from = h("input", { type: "number", min: 0, placeholder: "near the end", "data-filter": true });
  from.value = params.at ?? "";
  const batches = h("section", { class: "card" });
  const producers = h("section", { class: "card" });
  const files = h("div", { class: "stack" });

  const load = async () => {
    note("topic", { name: topic.name, tab: "log", partition: partition.value, at: from.value });
    const where = { topic: topic.name, partition: partition.value };
    const parts = [
      [batches, () => showBatches(batches, where, from.value, scope)],
      [producers, () => showProducers(producers, where, scope)],
      [files, () => showFiles(files, where, scope)],
    ];
    await Promise.all(
      parts.map(async ([box, show]) => {
        try {
          await show();
        } catch (error) {
          if (error.name !== "AbortError") fill(box, problem(error));
        }
      }),
    );
  };
  const form = h(
    "form",
    { class: "bar fields", onsubmit: (event) => (event.preventDefault(), load()) },
    field("Partition", partition),
    field("From offset", from),
    h("button", { type: "submit", class: "primary" }, "Show"),
  );
  partition.addEventListener("change", () => {
    from.value = "";
    load();
  });
  fill(body, form, batches, producers, files);
  await load();
}

// --- Batches --------------------------------------------------------------------------------------------------------

async function showBatches(box, where, from, scope) {
  const told = await get("log", { ...where, from }, scope.signal);
  const rows = h("tbody");
  const heads = [["Offsets", "number"], ["Records", "number"], ["Size", "number"], ["Compression", ""], ["Latest time", "minor"], ["Producer", "minor"], ["Sequence", "number minor"], ["Epoch", "number minor"], ["CRC-32C", "minor"]];
  const more = h("div", { class: "bar" });
  const append = (page) => {
    rows.append(...page.batches.map((each) => batchRow(each, where, heads.length, scope)));
    fill(
      more,
      page.note ? h("p", { class: "warn-text" }, page.note) : null,
      page.next === null
        ? h("span", { class: "quiet" }, "This is the end of the log.")
        : h("button", { type: "button", onclick: next(page.next) }, "More batches"),
    );
  };
  const next = (offset) => async (event) => {
    event.target.disabled = true;
    try {
      append(await get("log", { ...where, from: offset }, scope.signal));
    } catch (error) {
      if (error.name !== "AbortError") fill(more, problem(error));
    }
  };
  append(told);
  fill(
    box,
    h("h2", null, "Batches"),
    h(
      "p",
      { class: "quiet" },
      `The log begins at offset ${number(told.start)} and ends before ${number(told.end)}`,
      told.stable < told.end ? `; an open transaction holds readers of committed records at ${number(told.stable)}` : "",
      `. A row opens its bytes.${told.masked ? " Records of this topic are masked: of a batch the header is shown." : ""}`,
    ),
    told.batches.length
      ? h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Batches", onkeydown: arrows },
          h(
            "table",
            { "aria-label": "Batches" },
            h("thead", null, h("tr", null, heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
            rows,
          ),
        )
      : h("p", { class: "empty" }, "There are no batches here."),
    more,
  );
}

function arrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = event.target.closest("tr[data-batch]");
  if (!step || !row) return;
  let next = row;
  do next = step > 0 ? next.nextElementSibling : next.previousElementSibling;
  while (next && !next.dataset.batch);
  if (next) {
    event.preventDefault();
    next.querySelector("button").focus();
  }
}

function batchRow(batch, where, columns, scope) {
  const span = batch.base === batch.last ? number(batch.base) : `${number(batch.base)} – ${number(batch.last)}`;
  const button = h(
    "button",
    { type: "button", class: "open", "aria-expanded": "false", "aria-label": `Bytes of the batch at offset ${batch.base}` },
    span,
  );
  const kinds = [
    batch.transactional ? badge("transactional") : null,
    batch.marker ? badge(batch.marker.toLowerCase(), "warn") : null,
    batch.sound ? null : badge("wrong checksum", "bad"),
  ];
  const row = h(
    "tr",
    { "data-batch": batch.base },
    h("td", { class: "number" }, button),
    h("td", { class: "number" }, number(batch.count)),
    h("td", { class: "number" }, bytes(batch.size)),
    h("td", { title: batch.meaning }, batch.compression, kinds.map((each) => [" ", each])),
    h("td", { class: "minor" }, moment(batch.max_timestamp), batch.append_time ? h("span", { class: "quiet" }, " broker's") : null),
    h("td", { class: "mono minor" }, batch.producer === null ? "–" : `${batch.producer} / ${batch.producer_epoch}`),
    h("td", { class: "number minor" }, batch.base_sequence < 0 ? "–" : `${batch.base_sequence} – ${batch.last_sequence}`),
    h("td", { class: "number minor" }, batch.leader_epoch),
    h("td", { class: "mono minor" }, batch.crc ?? "–"),
  );
  row.addEventListener("click", (event) => {
    if (event.target.closest("a") || String(getSelection())) return;
    toggle(row, button, columns, scope, (inner) => showBytes(inner, where, batch, scope));
  });
  return row;
}

async function toggle(row, button, columns, scope, show) {
  const next = row.nextElementSibling;
  if (next?.classList.contains("detail")) {
    next.remove();
    button.setAttribute("aria-expanded", "false");
    return;
  }
  const inner = h("div", { class: "detail-inner" }, h("p", { class: "quiet" }, "Reading …"));
  row.after(h("tr", { class: "detail" }, h("td", { colspan: columns }, inner)));
  button.setAttribute("aria-expanded", "true");
  try {
    await show(inner);
  } catch (error) {
    if (error.name !== "AbortError") fill(inner, problem(error));
  }
}

async function showBytes(inner, where, batch, scope) {
  const told = await get("log/batch", { ...where, offset: batch.base }, scope.signal);
  fill(
    inner,
    h("p", null, `Attributes 0x${batch.attributes.toString(16).padStart(4, "0")}: ${batch.meaning}.`),
    h(
      "div",
      { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Bytes" },
      h(
        "table",
        { "aria-label": `Bytes of the batch at offset ${batch.base}`, class: "bytes-table" },
        h("thead", null, h("tr", null, ["At", "Bytes", "Field", "Value", "Meaning"].map((text) => h("th", { scope: "col" }, text)))),
        h(
          "tbody",
          null,
          told.fields.map((each) =>
            h(
              "tr",
              { class: each.bytes ? null : "group" },
              h("td", { class: "number mono" }, String(each.start)),
              h("td", { class: "mono quiet", title: hex(each.bytes, 64) }, hex(each.bytes)),
              h("td", { class: `depth-${each.depth}` }, each.name),
              h("td", { class: "mono value" }, each.value),
              h("td", { class: "quiet" }, each.note),
            ),
          ),
        ),
      ),
    ),
  );
}

// --- Producers ------------------------------------------------------------------------------------------------------

async function showProducers(box, where, scope) {
  let told;
  try {
    told = await get("log/producers", where, scope.signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    fill(box, h("h2", null, "Producers"), h("p", { class: "quiet" }, `They cannot be seen: ${error.message}`));
    return;
  }
  fill(
    box,
    h("h2", null, "Producers"),
    h(
      "p",
      { class: "quiet" },
      "What the leader remembers of producers with ids: the last sequence number tells it a batch that is sent again.",
    ),
    table(
      "Producers",
      [
        { title: "Producer id", number: true, cell: (p) => h("span", { class: "strong" }, String(p.producer)) },
        { title: "Epoch", number: true, cell: (p) => p.epoch },
        { title: "Last sequence", number: true, cell: (p) => (p.last_sequence < 0 ? "–" : number(p.last_sequence)) },
        { title: "Last write", cell: (p) => (p.last_timestamp < 0 ? "–" : `${duration(told.now - p.last_timestamp)} ago`) },
        { title: "Coordinator epoch", number: true, cell: (p) => number(p.coordinator_epoch) },
        {
          title: "Transaction",
          cell: (p) => (p.start === null ? "none open" : badge(`open since offset ${number(p.start)}`, "warn")),
        },
      ],
      told.rows,
      { empty: "It remembers none: nobody writes with idempotence, or not for a day." },
    ),
  );
}

// --- Files ----------------------------------------------------------------------------------------------------------

async function showFiles(box, where, scope) {
  const told = await get("log/files", where, scope.signal);
  if (!told.told) {
    fill(
      box,
      h(
        "p",
        { class: "quiet small" },
        "Segments and indexes are files of the nodes, which Kafka's protocol does not tell of. A console on a node's",
        " machine shows them: start it with --data DIR, or the node with --console.",
      ),
    );
    return;
  }
  fill(
    box,
    told.directories.length
      ? told.directories.map((each) => directory(each, where, scope))
      : h("p", { class: "quiet" }, "The log directories on this machine do not have this partition."),
  );
}

function directory(told, where, scope) {
  const count = told.segments.length < told.count ? `the newest ${told.segments.length} of ${told.count}` : told.count;
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Segments"),
    h("p", { class: "quiet" }, h("span", { class: "mono" }, told.directory), `: ${plural(count, "segment")}, the newest first`),
    h("div", { class: "segment-list" }, told.segments.map((segment) => segmentBox(segment, told.directory, where, scope))),
  );
}

function segmentBox(segment, directory, where, scope) {
  const shown = h("div");
  const open = (file) => async (event) => {
    for (const each of event.target.parentElement.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each === event.target));
    try {
      const told = await get("log/file", { ...where, directory, file: file.name }, scope.signal);
      fill(shown, entries(file, told.entries));
    } catch (error) {
      if (error.name !== "AbortError") fill(shown, problem(error));
    }
  };
  return h(
    "details",
    { class: "segment" },
    h(
      "summary",
      null,
      h("span", { class: "mono" }, `from offset ${number(segment.base)}`),
      h("span", { class: "quiet" }, ` · ${bytes(segment.size)} · changed ${moment(segment.changed, { millis: false })}`),
    ),
    h(
      "div",
      { class: "buttons" },
      segment.files.map((file) =>
        h(
          "button",
          { type: "button", "aria-pressed": "false", onclick: open(file) },
          `${file.kind} · ${file.entries === null ? bytes(file.size) : plural(file.entries, "entry", "entries")}`,
        ),
      ),
    ),
    shown,
  );
}

const COLUMNS = {
  index: ["offset", "position"],
  timeindex: ["timestamp", "offset"],
  txnindex: ["producer_id", "first_offset", "last_offset", "last_stable_offset"],
  snapshot: ["producer_id", "producer_epoch", "last_sequence", "last_offset", "last_timestamp", "current_txn_first_offset"],
  log: ["position", "size", "base_offset", "last_offset", "count", "compression", "producer_id", "max_timestamp"],
};

function entries(file, rows) {
  const shown = (name, value) => {
    if (value === null || value === undefined) return "–";
    return name.includes("timestamp") ? moment(value) : String(value);
  };
  const wrong = rows.filter((row) => row.kind === "error").map((row) => h("p", { class: "warn-text" }, row.problem));
  return [
    wrong,
    table(
      `Entries of ${file.name}`,
      COLUMNS[file.kind].map((name) => ({
        title: name.replaceAll("_", " "),
        number: !name.includes("timestamp") && name !== "compression",
        cell: (row) => shown(name, row[name]),
      })),
      rows.filter((row) => row.kind !== "padding" && row.kind !== "error"),
      { empty: "It has no entries." },
    ),
    rows.length >= 200 ? h("p", { class: "quiet small" }, "The first 200 are shown; kbroker dump-log shows all.") : null,
  ];
}
