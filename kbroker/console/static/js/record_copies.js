// Records sent to a topic: those of another topic once more, or out of a file. Both go in steps.

import { post } from "./api.js";
import { openForm } from "./dialog.js";
import { field, fill, h, tick, toast } from "./dom.js";
import { bytes, plural } from "./format.js";

const PIECE = 512 * 1024; // characters of a file that one request carries
const LONGEST = 2 * PIECE; // characters of one record: more would not go into a request

/** Replay what the form asks for: `asked` are the parameters of the records that are shown. */
export function replayRecords(topic, asked) {
  const to = h("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off" });
  const keep = tick("keep partitions", false);
  const status = h("p", { class: "quiet", role: "status" });
  const total = { stored: 0, looked_at: 0, not_stored: 0 };
  const copy = new Copy("records/replay", () => `${plural(total.stored, "record")} sent`);
  let [goon, ends, finished, first] = ["", "", false, ""];
  const dialog = openForm(`Replay records of ${topic}`, {
    action: "Replay",
    fields: [
      h("p", null, "All records from where the page begins to where it ends go to another topic, if they fit the filter."),
      field("To topic", to),
      keep.element,
      status,
    ],
    send: async () => {
      copy.guard(dialog);
      while (!finished && dialog.isConnected) {
        const told = await copy.step({ ...asked, to: to.value, keep_partitions: keep.input.checked, goon, ends });
        for (const input of [to, keep.input]) input.disabled = true; // what goes on is the copy that was begun
        ({ goon, ends, finished } = told);
        for (const name of Object.keys(total)) total[name] += told[name];
        first ||= told.problems[0] ?? "";
        fill(status, `${plural(total.stored, "record")} sent, ${plural(total.looked_at, "record")} read`);
        copy.check();
      }
      if (total.not_stored) throw new Error(`${plural(total.not_stored, "record")} not stored; the first: ${first}`);
      toast(`${plural(total.stored, "record")} sent to ${to.value}`);
    },
  });
}

/** The steps of a copy. After one that has failed in the middle, the next one goes on from its place. */
class Copy {
  constructor(path, done) {
    Object.assign(this, { path, done, place: "", error: null, over: null });
  }

  /** Have the browser ask before the page is left: with it goes the place where the copy is. */
  guard(dialog) {
    if (this.guarded) return;
    this.guarded = true;
    const ask = (event) => event.preventDefault();
    window.addEventListener("beforeunload", ask);
    dialog.addEventListener("close", () => window.removeEventListener("beforeunload", ask));
  }

  /** The answer to a step. */
  async step(asked) {
    if (this.over) throw new Error(this.over);
    let told;
    try {
      told = await post(this.path, { ...asked, place: this.place });
    } catch (error) {
      // With these it has told that nothing of the step is done.
      if (error.status && (error.status < 500 || error.status === 502)) throw error;
      this.over = `${this.done()}, then: ${error.message} Nobody knows what the last step has stored.`;
      throw new Error(this.over);
    }
    this.place = told.place ?? "";
    this.error = told.error ?? null;
    return told;
  }

  /** Throw what the last step has told, if it has failed: the form shows it, and its button goes on. */
  check() {
    if (!this.error) return;
    const text = `${this.done()}, then: ${this.error}.`;
    if (this.place) throw new Error(`${text} The button goes on from there, and nothing is stored twice.`);
    this.over = `${text} It cannot go on from there.`;
    throw new Error(this.over);
  }
}

/** Import a file that the page or `kbroker export` has made. */
export function importRecords(topic, done) {
  const file = h("input", { type: "file", accept: ".csv,.jsonl,.ndjson,.json,.parquet", required: true });
  const keep = tick("keep partitions", true);
  const status = h("p", { class: "quiet", role: "status" });
  let [stored, missing, first] = [0, 0, ""];
  const copy = new Copy("records/import", () => `${plural(stored, "record")} stored`);
  let coming = null; // the pieces of the file
  let piece = null; // the one that is not stored yet
  let last = null; // the answer to the one before
  let begun = false;
  const dialog = openForm(`Import records into ${topic}`, {
    action: "Import",
    fields: [field("File", file, "CSV, JSON lines or Parquet, as an export of this page or of kbroker export"), keep.element, status],
    send: async () => {
      copy.guard(dialog);
      const chosen = file.files[0];
      const format = { csv: "csv", parquet: "parquet" }[chosen.name.split(".").pop().toLowerCase()] ?? "jsonl";
      const sent = (size) => fill(status, `${bytes(size)} of ${bytes(chosen.size)} of the file are with the console`);
      const parts = () => (format === "parquet" ? rows(chosen, topic, sent) : pieces(chosen, format === "csv"));
      if (!begun) [coming, piece, last] = [parts(), null, null];
      for (;;) {
        if (!dialog.isConnected) return;
        piece ??= (await coming.next(last)).value;
        if (!piece) break;
        const told = await copy.step({ topic, format, ...piece, keep_partitions: keep.input.checked });
        for (const input of [file, keep.input]) input.disabled = begun = true;
        stored += told.stored;
        missing += told.not_stored;
        first ||= told.problems[0] ?? "";
        fill(status, `${plural(stored, "record")} stored`);
        if (told.error) done();
        copy.check();
        [piece, last] = [null, told];
      }
      done();
      if (missing) throw new Error(`${plural(stored, "record")} stored, ${missing} not; the first: ${first}`);
      toast(`${plural(stored, "record")} stored in ${topic}`);
    },
  });
}

/** A Parquet file, which the console has to have whole: then steps of it, each after the answer to the one before. */
async function* rows(file, topic, sent) {
  let upload = "";
  for (let at = 0; at === 0 || at < file.size; at += PIECE) {
    const data = base64(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
    if (!data) throw new Error("the file is empty");
    ({ upload } = await post("records/upload", { topic, upload, at, data }));
    sent(Math.min(at + PIECE, file.size));
  }
  for (let told = { next: 0, finished: false }; !told.finished; ) told = yield { upload, begin: told.next };
}

function base64(data) {
  const letters = [];
  for (let at = 0; at < data.length; at += 8192) letters.push(String.fromCharCode(...data.subarray(at, at + 8192)));
  return btoa(letters.join(""));
}

/**
 * A file in pieces of whole records; each piece of a CSV begins with the row of names. `shift` is what line numbers of
 * the piece lack to those of the file.
 */
async function* pieces(file, isCsv) {
  let names = null;
  let rest = "";
  let shift = 0;
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
      if ((cut ?? rest.length) > LONGEST) {
        const line = shift + (names ? names.split("\n").length - 1 : 0) + 1;
        const why = isCsv ? ": is a quote in it not closed?" : "";
        throw new Error(`the record in line ${line.toLocaleString("en")} is too long${why}`);
      }
      if (cut === undefined) break;
      const text = rest.slice(0, cut);
      yield { text: (names ?? "") + text, shift };
      shift += text.split("\n").length - 1;
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
