// The clients that are connected to the nodes now, in a part of the page that is opened. While it is open it is asked for again.

import { clock, h, waitsForRelease } from "./elements.js";

const AGAIN_MS = 2000;
const HEADS = ["Client", "Software", "Principal", "From", "Node", "Since", "Requests", "Received", "TLS", "Login", "Listener", "Kind", "Part of"];

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
    h("thead", null, h("tr", null, HEADS.map((text) => h("th", { scope: "col" }, text)))),
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
    return h(
      "tr",
      null,
      h("td", null, h("button", { type: "button", class: "plain link", "data-key": key, "aria-label": label, onclick: () => onClient(client) }, name)),
      h("td", { title: client.software }, client.software === "unknown" ? "not told" : client.software),
      h("td", { title: client.principal }, client.principal),
      h("td", { class: "mono" }, client.peer),
      h("td", { class: "number" }, String(client.node)),
      h("td", { class: "mono" }, client.since_ms < 0 ? "–" : h("time", { datetime: new Date(client.since_ms).toISOString() }, since(client.since_ms))),
      h("td", { class: "number" }, count(client.requests)),
      h("td", { class: "number" }, client.bytes_received < 0 ? "–" : `${count(client.bytes_received)} B`),
      h("td", null, client.tls || "no TLS"),
      h("td", null, client.sasl || "none"),
      h("td", null, client.listener),
      h("td", null, client.kind),
      h(
        "td",
        null,
        sequence
          ? h(
              "button",
              { type: "button", class: `chip hue-${sequence.number % 6}`, "data-key": `${key}/sequence`, onclick: () => onSequence(sequence.number, `${sequence.kind} of ${sequence.subject}`) },
              `${sequence.kind} ${sequence.number}`,
            )
          : null,
      ),
    );
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

const count = (number) => (number < 0 ? "–" : number.toLocaleString("en"));

/** A time of today without its day. */
function since(ms) {
  const at = new Date(ms);
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.getFullYear()}-${at.getMonth() + 1}-${at.getDate()} `;
  return `${day}${clock(ms).slice(0, 8)}`;
}
