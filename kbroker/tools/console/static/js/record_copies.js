// Records sent to a topic: those of another topic once more, or out of a file. The console's process owns each copy: a page
// that is loaded again finds it.

import { get, post } from "./api.js";
import { openForm } from "./dialog.js";
import { badge, field, h, refill, tick, toast } from "./dom.js";
import { bytes, number, plural } from "./format.js";

const PIECE = 512 * 1024; // characters of a file that one request carries
const LONGEST = 2 * PIECE; // characters of one record: more would not go into a request

/** Replay what the form asks for: `asked` are the parameters of the records that are shown. */
export function replayRecords(topic, asked) {
  const to = h("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off" });
  const keep = tick("keep partitions", false);
  const ends = tick("end it when this page is closed", false);
  openForm(`Replay records of ${topic}`, {
    action: "Replay",
    fields: [
      h("p", null, "All records from where the page begins to where it ends go to another topic, if they fit the filter."),
      field("To topic", to),
      keep.element,
      ends.element,
    ],
    send: async () => {
      const params = { ...asked, to: to.value, keep_partitions: keep.input.checked, ends_unwatched: ends.input.checked };
      takeCopy(await post("copies/replay", params));
    },
  });
}

/** Import a file that the page or `kbroker export` has made. `done` is called when it is stored. */
export function importRecords(topic, done) {
  const file = h("input", { type: "file", accept: ".csv,.jsonl,.ndjson,.json,.parquet", required: true });
  const keep = tick("keep partitions", true);
  openForm(`Import records into ${topic}`, {
    action: "Import",
    fields: [field("File", file, "CSV, JSON lines or Parquet, as an export of this page or of kbroker export"), keep.element],
    send: async () => {
      const [chosen] = file.files;
      const format = { csv: "csv", parquet: "parquet" }[chosen.name.split(".").pop().toLowerCase()] ?? "jsonl";
      const { name, size } = chosen;
      const copy = await post("copies/import", { topic, format, name, size, keep_partitions: keep.input.checked });
      takeCopy(copy);
      upload(copy, chosen, done);
    },
  });
}

// --- Copies of this session, which the console's process owns -------------------------------------------------------

const copies = new Map(); // id -> as the console tells it
const files = new Map(); // id of an import -> its file, and who is told when it is stored
const sending = new Set(); // ids of imports whose file this page sends
const troubles = new Map(); // id -> why this page does not go on with it
const newer = new Set(); // ids of copies of which this page knows more than the question under way will tell
let timer = 0;
let sessions = 0; // those that this page has seen end

/** Find the copies of this session again, as after the page was loaded. */
export async function findCopies() {
  clearTimeout(timer);
  timer = -1; // one question at a time
  newer.clear();
  const session = sessions;
  try {
    const { rows } = await get("copies");
    if (session !== sessions) return;
    const known = new Map(copies);
    copies.clear();
    for (const copy of rows) if (!newer.has(copy.id)) keep(copy, known.get(copy.id));
    for (const id of newer) if (known.has(id)) copies.set(id, known.get(id));
  } catch {
    if (session !== sessions) return;
    // The console does not answer: what is known stays shown.
  }
  timer = 0;
  draw();
  watch();
}

/** Ask again while any copy runs. One that ends with its page lives by that. */
function watch() {
  if (!timer && [...copies.values()].some((copy) => copy.state === "running")) timer = setTimeout(findCopies, 700);
}

/** Nobody is signed in any more: the copies were those of the user before. */
export function forgetCopies() {
  sessions += 1;
  clearTimeout(timer);
  timer = 0;
  for (const known of [copies, files, sending, troubles, newer]) known.clear();
  draw();
}

const isOver = (copy) => copy.state === "done" || copy.state === "cancelled";

function keep(copy, before) {
  copies.set(copy.id, copy);
  if (before && isOver(copy) && !isOver(before)) toast(`The ${copy.kind} is ${copy.state}.`);
}

export function takeCopy(copy) {
  newer.add(copy.id);
  keep(copy, copies.get(copy.id));
  draw();
  watch();
}

function dropCopy(id) {
  newer.add(id);
  copies.delete(id);
}

/** Note what the console tells of a copy that this page knows; false if it does not take pieces now. */
function takes(copy) {
  if (!copies.has(copy.id)) return false;
  takeCopy(copy);
  return copy.state === "waits";
}

// The rest of a file is with the page: before it is left meanwhile, the browser asks.
window.addEventListener("beforeunload", (event) => {
  if (sending.size) event.preventDefault();
});

/** Send the pieces of a file that are not stored yet. */
async function upload(begun, file, done) {
  const { id } = begun;
  if (sending.has(id)) return;
  files.set(id, { file, done });
  sending.add(id);
  troubles.delete(id);
  draw();
  try {
    await (begun.format === "parquet" ? sendRows : sendPieces)(begun, file);
    const state = copies.get(id)?.state;
    // Where another page sends the same file, this one needs it no more, nor where the copy is over.
    if (state !== "failed") files.delete(id);
    if (state === "done") done?.();
  } catch (error) {
    const copy = copies.get(id);
    if (copy && !isOver(copy)) troubles.set(id, error.message);
    else files.delete(id);
  } finally {
    sending.delete(id);
    draw();
  }
}

/** Send the pieces of a file that are not stored yet, as long as the copy takes them. */
async function sendPieces(copy, file) {
  const { id } = copy;
  let number = 0;
  for await (const piece of pieces(file, copy.format === "csv")) {
    if (number >= (copies.get(id)?.pieces ?? 0) && !takes(await post("copies/piece", { id, number, ...piece }))) return;
    number += 1;
  }
  takes(await post("copies/piece", { id, number, last: true }));
}

/** Send what the console lacks of a Parquet file, which it has to have whole; then it is asked to store the rows. */
async function sendRows({ id, kept, pieces: stored }, file) {
  if (!file.size) throw new Error("the file is empty");
  let known = { kept, pieces: stored };
  do {
    if (known.kept < file.size) {
      const piece = file.slice(known.kept, known.kept + PIECE);
      const data = base64(new Uint8Array(await piece.arrayBuffer()));
      known = await post("records/upload", { id, at: known.kept, data });
    } else known = await post("copies/piece", { id, number: known.pieces });
  } while (takes(known));
}

function base64(data) {
  const letters = [];
  for (let at = 0; at < data.length; at += 8192) letters.push(String.fromCharCode(...data.subarray(at, at + 8192)));
  return btoa(letters.join(""));
}

async function act(path, id) {
  try {
    const told = await post(`copies/${path}`, { id });
    if (told.id) takes(told);
    else dropCopy(id);
    return told;
  } catch (error) {
    toast(error.message, "bad");
    if (error.status === 404) dropCopy(id);
    return null;
  } finally {
    draw();
  }
}

async function goOn(copy) {
  const known = files.get(copy.id);
  const told = await act("go-on", copy.id); // which also tells how much of the file is there
  if (told && known) upload(told, known.file, known.done);
}

function draw() {
  const place = document.getElementById("copies");
  refill(place, [...copies.values()].map((copy) => h("div", { class: "copy" }, line(copy))));
  place.hidden = !copies.size;
}

const STATES = {
  running: ["under way", "info"],
  waits: ["waits for its file", "warn"],
  failed: ["stopped", "bad"],
  done: ["done", "good"],
  cancelled: ["cancelled", "quiet"],
  cancelling: ["is cancelled", "warn"],
};

function line(copy) {
  const trouble = copy.error || troubles.get(copy.id);
  const isSent = sending.has(copy.id);
  const over = isOver(copy);
  const state = copy.cancelling && !over ? "cancelling" : trouble && !over && !isSent ? "failed" : isSent ? "running" : copy.state;
  const waits = copy.kind === "import" && !over && !isSent && !files.has(copy.id) && copy.state !== "running";
  const button = (text, action) => h("button", { type: "button", onclick: action }, text);
  return [
    badge(...STATES[state]),
    h(
      "div",
      { class: "grow" },
      describe(copy),
      trouble && !isSent ? h("p", { class: "quiet" }, `${trouble}. ${then(copy)}`) : null,
      copy.notes.map((note) => h("p", { class: "quiet" }, note)),
    ),
    waits ? chooser(copy) : null,
    state === "failed" && !waits ? button("Go on", () => goOn(copy)) : null,
    over ? button("Dismiss", () => act("forget", copy.id)) : button("Cancel", () => act("cancel", copy.id)),
  ];
}

function then(copy) {
  if (isOver(copy)) return "";
  if (copy.may_double === null) return "It can go on, but what its last step has stored may be stored twice then.";
  if (!copy.may_double) return "It can go on from there, and nothing is stored twice.";
  return `It can go on from there, but ${plural(copy.may_double, "record")} may be stored twice then: brokers do not know them again.`;
}

function describe(copy) {
  const counted = plural(copy.stored, "record");
  const missing = copy.not_stored ? `, ${number(copy.not_stored)} not stored; the first: ${copy.problems[0]}` : "";
  if (copy.kind === "replay") {
    const read = copy.state === "done" ? "" : `, ${plural(copy.looked_at, "record")} of ${copy.source} read`;
    return `${counted} sent to ${copy.to}${read}${missing}`;
  }
  if (copy.format === "parquet" && sending.has(copy.id) && copy.kept < copy.size) {
    return `${bytes(copy.kept)} of ${bytes(copy.size)} of ${copy.source} are with the console`;
  }
  return `${counted} stored in ${copy.to}${copy.state === "done" ? "" : ` of ${copy.source}`}${missing}`;
}

/** The file is chosen once more: a page that is loaded again has it no more. */
function chooser(copy) {
  const input = h("input", { type: "file", "aria-label": `Choose ${copy.source} again` });
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    if (file.size !== copy.size || file.name !== copy.source) {
      toast(`this is not the file: it was ${copy.source} with ${plural(copy.size, "byte")}`, "bad");
      input.value = "";
      return;
    }
    files.set(copy.id, { file });
    goOn(copy);
  });
  return input;
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
