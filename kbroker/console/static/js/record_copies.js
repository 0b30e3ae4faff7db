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
const sent = new Map(); // id of an import whose file the console has to have whole -> bytes that it has
let timer = 0;

/** Find the copies of this session again, as after the page was loaded. */
export async function findCopies() {
  clearTimeout(timer);
  try {
    const { rows } = await get("copies");
    const known = new Map(copies);
    copies.clear();
    for (const copy of rows) keep(copy, known.get(copy.id));
  } catch {
    // The console does not answer, or nobody is signed in any more: what is known stays shown.
  }
  draw();
  if ([...copies.values()].some((copy) => copy.state === "running")) timer = setTimeout(findCopies, 700);
}

const isOver = (copy) => copy.state === "done" || copy.state === "cancelled";

function keep(copy, before) {
  copies.set(copy.id, copy);
  if (before && isOver(copy) && !isOver(before)) toast(`The ${copy.kind} is ${copy.state}.`);
}

function takeCopy(copy) {
  keep(copy, copies.get(copy.id));
  draw();
  clearTimeout(timer);
  if (copy.state === "running") timer = setTimeout(findCopies, 700);
}

// The rest of a file is with the page: before it is left meanwhile, the browser asks.
window.addEventListener("beforeunload", (event) => {
  if (sending.size) event.preventDefault();
});

/** Send the pieces of a file that are not stored yet. */
async function upload(copy, file, done) {
  const { id } = copy;
  if (sending.has(id)) return;
  files.set(id, { file, done });
  sending.add(id);
  troubles.delete(id);
  draw();
  try {
    if (!(await (copy.format === "parquet" ? sendRows : sendPieces)(copy, file))) return;
    if (copies.get(id).state === "done") files.delete(id);
    done?.();
  } catch (error) {
    troubles.set(id, error.message);
  } finally {
    sending.delete(id);
    sent.delete(id);
    draw();
  }
}

/** Whether all pieces of a file are stored now. */
async function sendPieces(copy, file) {
  const { id } = copy;
  let number = 0;
  for await (const piece of pieces(file, copy.format === "csv")) {
    if (number >= copies.get(id).pieces) {
      const told = await post("copies/piece", { id, number, ...piece });
      takeCopy(told);
      if (told.state !== "waits") return false;
    }
    number += 1;
  }
  takeCopy(await post("copies/piece", { id, number, last: true }));
  return true;
}

/** Whether all rows of a Parquet file are stored now; the console has to have the file whole. */
async function sendRows(copy, file) {
  const { id } = copy;
  let upload = "";
  for (let at = 0; at === 0 || at < file.size; at += PIECE) {
    if (isOver(copies.get(id))) return false;
    const data = base64(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
    if (!data) throw new Error("the file is empty");
    ({ upload } = await post("records/upload", { topic: copy.to, upload, at, data }));
    sent.set(id, Math.min(at + PIECE, file.size));
    draw();
  }
  sent.delete(id);
  for (;;) {
    const told = await post("copies/piece", { id, number: copies.get(id).pieces, upload });
    takeCopy(told);
    if (told.state !== "waits") return told.state === "done";
  }
}

function base64(data) {
  const letters = [];
  for (let at = 0; at < data.length; at += 8192) letters.push(String.fromCharCode(...data.subarray(at, at + 8192)));
  return btoa(letters.join(""));
}

async function act(path, id) {
  try {
    const told = await post(`copies/${path}`, { id });
    if (told.id) takeCopy(told);
    else copies.delete(id);
    return told;
  } catch (error) {
    toast(error.message, "bad");
    if (error.status === 404) copies.delete(id);
    return null;
  } finally {
    draw();
  }
}

async function goOn(copy) {
  const known = files.get(copy.id);
  const told = copy.state === "failed" ? await act("go-on", copy.id) : copy;
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
    h("div", { class: "grow" }, describe(copy), trouble && !isSent ? h("p", { class: "quiet" }, `${trouble}. ${then(copy)}`) : null),
    waits ? chooser(copy) : null,
    state === "failed" && !waits ? button("Go on", () => goOn(copy)) : null,
    over ? button("Dismiss", () => act("forget", copy.id)) : button("Cancel", () => act("cancel", copy.id)),
  ];
}

const then = (copy) => (isOver(copy) ? "" : "It can go on from there, and nothing is stored twice.");

function describe(copy) {
  const counted = plural(copy.stored, "record");
  const missing = copy.not_stored ? `, ${number(copy.not_stored)} not stored; the first: ${copy.problems[0]}` : "";
  if (copy.kind === "replay") {
    const read = copy.state === "done" ? "" : `, ${plural(copy.looked_at, "record")} of ${copy.source} read`;
    return `${counted} sent to ${copy.to}${read}${missing}`;
  }
  if (sent.has(copy.id)) return `${bytes(sent.get(copy.id))} of ${bytes(copy.size)} of ${copy.source} are with the console`;
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
