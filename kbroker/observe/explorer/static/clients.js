// The clients that are connected to the nodes now, in a part of the page that is opened. While it is open it is asked for again.

import { clock, h, waitsForRelease } from "./elements.js";

const AGAIN_MS = 2000;

// What is told of a client: a heading, a class (`number`, or `mono`) and the width in tens of pixels from which the list
// has the column. Of the client that is chosen all is told.
const COLUMNS = [
  ["Client", "", 0],
  ["Software", "", 0],
  ["From", "mono", 0],
  ["Principal", "", 80],
  ["Node", "number", 60],
  ["Since", "mono", 70],
  ["Requests", "number", 0],
  ["Received", "number", 110],
  ["TLS", "", 130],
  ["Login", "", 130],
  ["Listener", "", 130],
  ["Kind", "", 130],
  ["Part of", "", 95],
];
const classOf = ([, name, from]) => [name, from ? `from-${from}` : ""].filter(Boolean).join(" ") || null;

/**
 * `onClient(client)` is called for the requests of one, `onSequence(number, name)` for those of the sequence that it is in.
 * `look(words, withNodes)` shows those that have the words, brokers and controllers among them or not; `close()` ends it.
 */
export function clientTable(base, onClient, onSequence) {
  let words = "";
  let nodes = false;
  let timer = 0;
  let over = false;
  let asked = 0;
  const status = h("p", { class: "quiet", role: "status" });
  const body = h("tbody", null);
  const summary = h("summary", null, "Clients");
  const table = h(
    "table",
    { class: "clients" },
    h("caption", { class: "hidden" }, "Connected clients"),
    h("thead", null, h("tr", null, COLUMNS.map((column) => h("th", { scope: "col", class: classOf(column) }, column[0])))),
    body,
  );
  const element = h(
    "details",
    { class: "connected", ontoggle: () => ask() },
    summary,
    status,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Connected clients" }, table),
  );

  async function ask() {
    clearTimeout(timer);
    if (over || !element.open) return;
    const mine = (asked += 1);
    try {
      const answer = await fetch(`${base}clients?words=${encodeURIComponent(words)}&nodes=${nodes ? 1 : 0}`);
      const told = await answer.json();
      if (mine !== asked || over) return;
      if (!answer.ok) throw new Error(told.error ?? `the explorer answers ${answer.status}`);
      draw(told);
    } catch (error) {
      if (mine === asked) status.textContent = `The clients are not known: ${error.message}`;
    }
    if (mine === asked && !over && element.open) timer = setTimeout(ask, AGAIN_MS);
  }

  function draw(told) {
    if (waitsForRelease(body, () => draw(told))) return;
    const { rows, total, all, left_out, silent } = told;
    const parts = [`${rows.length} of ${all} connections shown`];
    if (total > rows.length) parts.push(`${total - rows.length} more fit: filter to see them`);
    if (left_out) parts.push(`${left_out} of brokers and controllers left out: tick "brokers and controllers too"`);
    for (const [address, why] of Object.entries(silent)) parts.push(why.includes(address) ? why : `${address}: ${why}`);
    status.textContent = parts.join(" · ");
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    body.replaceChildren(...rows.map(rowOf));
    if (focused) [...body.querySelectorAll("button")].find((each) => each.dataset.key === focused)?.focus({ preventScroll: true });
  }

  function rowOf(client) {
    const key = `${client.node}/${client.connection}`;
    const name = client.client_id || "without a name";
    const label = `Only the requests of ${name}, connection ${client.connection} of node ${client.node}`;
    const { sequence } = client;
    const cells = factsOf(client);
    cells.Client = h("button", { type: "button", class: "plain link", "data-key": key, "aria-label": label, onclick: () => onClient(client) }, name);
    if (sequence) {
      const only = () => onSequence(sequence.number, `${sequence.kind} of ${sequence.subject}`);
      cells["Part of"] = h("button", { type: "button", class: `chip hue-${sequence.number % 6}`, "data-key": `${key}/sequence`, onclick: only }, `${sequence.kind} ${sequence.number}`);
    }
    // A library names its build after its version: the list has that where there is width.
    const [, short, build] = /^(\S+ [^-]*)(-.*)?$/.exec(client.software) ?? [];
    if (build) cells.Software = h("span", null, short, h("span", { class: "from-165" }, build));
    const titles = { Software: client.software, Principal: client.principal };
    return h("tr", null, COLUMNS.map((column) => h("td", { class: classOf(column), title: titles[column[0]] }, cells[column[0]])));
  }

  return {
    element,
    look(text, withNodes) {
      words = text;
      nodes = withNodes;
      ask();
    },
    close() {
      over = true;
      clearTimeout(timer);
    },
  };
}

/** All that is known of a client, by its headings. */
const factsOf = (client) => ({
  Software: client.software === "unknown" ? "not told" : client.software,
  From: client.peer,
  Principal: client.principal,
  Node: String(client.node),
  Since: client.since_ms < 0 ? "–" : h("time", { datetime: new Date(client.since_ms).toISOString() }, since(client.since_ms)),
  Requests: count(client.requests),
  Received: client.bytes_received < 0 ? "–" : `${count(client.bytes_received)} B`,
  TLS: client.tls || "no TLS",
  Login: client.sasl || "none",
  Listener: client.listener,
  Kind: client.kind,
});

/** A list of them, as they were when the client was chosen. */
export const clientFacts = (client) =>
  h("dl", { class: "client-facts" }, Object.entries(factsOf(client)).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));

const count = (number) => (number < 0 ? "–" : number.toLocaleString("en"));

/** A time of today without its day. */
function since(ms) {
  const at = new Date(ms);
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.getFullYear()}-${at.getMonth() + 1}-${at.getDate()} `;
  return `${day}${clock(ms).slice(0, 8)}`;
}
