// Records sent to a topic: those of another topic once more, or out of a file. Both go in steps.

import { post } from "./api.js";
import { openForm } from "./dialog.js";
import { field, fill, h, tick, toast } from "./dom.js";
import { plural } from "./format.js";

const PIECE = 512 * 1024; // characters of a file that one request carries

/** Replay what the form asks for: `asked` are the parameters of the records that are shown. */
export function replayRecords(topic, asked) {
  const to = h("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off" });
  const keep = tick("keep partitions", false);
  const status = h("p", { class: "quiet", role: "status" });
  const dialog = openForm(`Replay records of ${topic}`, {
    action: "Replay",
    fields: [
      h("p", null, "All records from where the page begins to where it ends go to another topic, if they fit the filter."),
      field("To topic", to),
      keep.element,
      status,
    ],
    send: async () => {
      const total = { stored: 0, looked_at: 0, not_stored: 0 };
      let told = { goon: "", ends: "", finished: false };
      let first = "";
      while (!told.finished && dialog.isConnected) {
        const step = { ...asked, to: to.value, keep_partitions: keep.input.checked, goon: told.goon, ends: told.ends };
        told = await post("records/replay", step);
        for (const name of Object.keys(total)) total[name] += told[name];
        first ||= told.problems[0] ?? "";
        fill(status, `${plural(total.stored, "record")} sent, ${plural(total.looked_at, "record")} read`);
      }
      if (total.not_stored) throw new Error(`${plural(total.not_stored, "record")} not stored; the first: ${first}`);
      toast(`${plural(total.stored, "record")} sent to ${to.value}`);
    },
  });
}

/** Import a file that the page or `kbroker export` has made. */
export function importRecords(topic, done) {
  const file = h("input", { type: "file", accept: ".csv,.jsonl,.ndjson,.json", required: true });
  const keep = tick("keep partitions", true);
  const status = h("p", { class: "quiet", role: "status" });
  const dialog = openForm(`Import records into ${topic}`, {
    action: "Import",
    fields: [field("File", file, "CSV or JSON lines, as an export of this page or of kbroker export"), keep.element, status],
    send: async () => {
      const chosen = file.files[0];
      const format = /\.csv$/i.test(chosen.name) ? "csv" : "jsonl";
      let stored = 0;
      const problems = [];
      let missing = 0;
      for await (const text of pieces(chosen, format === "csv")) {
        if (!dialog.isConnected) return;
        const told = await post("records/import", { topic, format, text, keep_partitions: keep.input.checked });
        stored += told.stored;
        missing += told.not_stored;
        problems.push(...told.problems);
        fill(status, `${plural(stored, "record")} stored`);
      }
      done();
      if (missing) throw new Error(`${plural(stored, "record")} stored, ${missing} not; the first: ${problems[0]}`);
      toast(`${plural(stored, "record")} stored in ${topic}`);
    },
  });
}

/** A file in pieces of whole records; each piece of a CSV begins with the row of names. */
async function* pieces(file, isCsv) {
  let names = null;
  let rest = "";
  const reader = file.stream().pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
  for (;;) {
    const { value, done } = await reader.read().catch(() => {
      throw new Error("the file is not UTF-8, or cannot be read; records before that place are stored");
    });
    rest += value ?? "";
    if (isCsv && names === null) {
      const end = ends(rest, true, 1)[0];
      if (end === undefined && !done) continue;
      names = rest.slice(0, end ?? rest.length);
      rest = rest.slice(names.length);
      if (!names.endsWith("\n")) names += "\n";
    }
    while (rest.length >= PIECE || (done && rest)) {
      const places = ends(rest.slice(0, PIECE), isCsv);
      let cut = places.at(-1);
      if (rest.length < PIECE) cut = rest.length;
      if (cut === undefined) cut = ends(rest, isCsv, 1)[0] ?? (done ? rest.length : undefined);
      if (cut === undefined) break;
      yield (names ?? "") + rest.slice(0, cut);
      rest = rest.slice(cut);
    }
    if (done) return;
  }
}

/** Places after the ends of records, at most `most`: line ends that are not within the quotes of a CSV. */
function ends(text, isCsv, most = Infinity) {
  const found = [];
  let quoted = false;
  for (let at = 0; at < text.length && found.length < most; at += 1) {
    const letter = text[at];
    if (isCsv && letter === '"') quoted = !quoted;
    else if (letter === "\n" && !quoted) found.push(at + 1);
  }
  return found;
}
