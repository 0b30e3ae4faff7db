// The protocol explorer: requests and answers as they happen, and all that is known of the one that is chosen.
//
// `showExplorer(main, { base, onEnd })` fills an element. Below `base` there are `events` (server-sent events
// `exchange` and `skipped`, perhaps `nodes`), `exchange?node=&run=&number=`, `clients?words=&nodes=`, `saved.exchanges`. `onEnd`, if given, is
// told what stops it. With `clientsOpen` it is a page of the clients, and of the requests of one as soon as that is chosen.
// Text only ever becomes text: nothing is parsed as HTML.

import { clientFacts, clientTable } from "./clients.js";
import { clock, h, took, waitsForRelease } from "./elements.js";

const SHOWN = 400; // rows of the table
const KEPT = 2000; // exchanges that a filter is asked about
const SPARE = 200; // over that, before the oldest are forgotten
const IDLE = "nothing new"; // the answer to a Fetch that has waited in vain: most are, and they tell little

const keyOf = (each) => `${each.node}/${each.run}/${each.exchange}`;
const connectionOf = (each) => `${each.node}/${each.run}/${each.connection}`;

function matches(exchange, wanted) {
  if (exchange.is_internal && !wanted.internal) return false;
  if (wanted.errors && !exchange.errors.length && exchange.took_ms !== null) return false;
  if (wanted.connection && wanted.connection !== connectionOf(exchange)) return false;
  if (wanted.sequence && !exchange.sequences.some((each) => each.number === wanted.sequence)) return false;
  return wanted.words.every((word) => exchange.text.includes(word));
}

export function showExplorer(main, { base = "", onEnd = null, words = "", clientsOpen = false } = {}) {
  const kept = [];
  const latest = new Map(); // node and its run -> the highest number that has come
  let chosen = null;
  let paused = false;
  let missed = 0;
  let skipped = 0;
  const reasons = new Set(); // why, in words
  let forgotten = 0; // older ones that are not kept any more
  let fitting = 0;
  let shown = 0;
  let folded = 0; // fetches that brought nothing, which one row stands for
  let saved = ""; // what has become of the last file
  let silent = ""; // nodes that are not followed now
  const split = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = { words: split(words), errors: false, internal: false, sequence: 0, connection: "" };
  let showsIdle = false;

  const filter = h("input", {
    type: "search",
    "data-filter": true,
    "aria-label": "Filter: words that a request has to contain",
    placeholder: "client, API, topic, group …",
    oninput: () => {
      wanted.words = split(filter.value);
      redraw();
      lookForClients();
    },
  });
  filter.value = words;
  const tick = (label, name) => {
    const box = h("input", { type: "checkbox", onchange: () => ((wanted[name] = box.checked), redraw(), lookForClients()) });
    return h("label", { class: "tick" }, box, ` ${label}`);
  };
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => setPaused(!paused) }, "Pause");
  const clear = h("button", { type: "button", onclick: empty }, "Clear");
  const saveAll = h("a", { href: `${base}saved.exchanges`, download: "saved.exchanges", class: "button" }, "Save all");
  const saveSome = h("button", { type: "button", onclick: saveFitting }, "Save what fits");
  const sequence = h("span", { class: "sequence-filter" });
  const connection = h("span", { class: "connection-filter" });
  const ofClient = h("div", null);
  const clients = clientTable(base, onlyConnection, (number, name) => only(number, name));
  clients.element.open = clientsOpen;
  lookForClients();
  const state = h("p", { class: "state", role: "status" }, "connecting …");
  const body = h("tbody", null);
  const details = h("section", { class: "details", "aria-label": "The chosen request", tabindex: "-1", hidden: true });
  const table = h(
    "table",
    { class: "exchanges", onkeydown: onKey },
    h("caption", { class: "hidden" }, "Requests and answers, the latest first"),
    h("thead", null, h("tr", null, ["Time", "Client", "Took", "Request", "Answer", "Part of"].map((text) => h("th", { scope: "col" }, text)))),
    body,
  );
  main.classList.add("explorer");
  main.replaceChildren(
    h("h1", null, clientsOpen ? "Clients" : "Protocol explorer"),
    h("div", { class: "bar" }, filter, tick("errors only", "errors"), tick("brokers and controllers too", "internal"), sequence, connection, h("div", { class: "actions" }, pause, clear, saveSome, saveAll)),
    state,
    clients.element,
    ofClient,
    h("div", { class: "panes" }, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Requests" }, table), details),
  );
  const showClientsAlone = () => main.classList.toggle("clients-alone", clientsOpen && !wanted.connection && !wanted.sequence);
  showClientsAlone();

  function lookForClients() {
    clients.look(filter.value, wanted.internal);
  }

  function setPaused(value) {
    paused = value;
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) redraw();
    tell();
  }

  function empty() {
    kept.splice(0); // the latest stay known: what was cleared does not come back
    skipped = forgotten = 0;
    reasons.clear();
    saved = "";
    redraw();
  }

  function tell(problem = "") {
    const parts = problem ? [problem] : [];
    if (kept.length || !problem) parts.push(`${shown} of ${kept.length} requests shown`);
    if (!kept.length && !problem && !paused) parts.push("what clients ask from now on comes here");
    const older = fitting - shown - folded;
    if (older > 0) parts.push(`${older} older ones fit, too: a filter shows them`);
    if (forgotten) parts.push(`${forgotten} older ones are kept no more`);
    if (saved) parts.push(saved);
    if (silent) parts.push(silent);
    if (paused) parts.push(`paused, ${missed} new since`);
    if (skipped) parts.push(`${skipped} not shown: ${[...reasons].join("; ")}`);
    state.textContent = parts.join(" · ");
  }

  /** Forget the oldest: first of those that are not shown now, so that one client among many busy ones stays to be seen. */
  function forget() {
    const surplus = kept.length - KEPT;
    forgotten += surplus;
    let hidden = 0;
    const rest = kept.filter((each) => hidden === surplus || matches(each, wanted) || (hidden += 1) === 0);
    kept.splice(0, kept.length, ...rest.slice(rest.length - KEPT));
  }

  let drawing = false;
  function redraw() {
    missed = 0;
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      if (waitsForRelease(body, redraw)) return;
      const rows = [];
      const idle = new Map(); // client -> its fetches that brought nothing
      fitting = 0;
      for (let index = kept.length - 1; index >= 0; index -= 1) {
        const each = kept[index];
        if (!matches(each, wanted)) continue;
        fitting += 1;
        if (each.answer === IDLE) idle.set(each.client_id, (idle.get(each.client_id) ?? 0) + 1);
        if (rows.length < SHOWN && (showsIdle || each.answer !== IDLE || each.key === chosen)) rows.push(rowOf(each));
      }
      shown = rows.length;
      folded = showsIdle ? 0 : [...idle.values()].reduce((sum, count) => sum + count, 0);
      if (idle.size) rows.unshift(idleRow(idle));
      const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : null;
      body.replaceChildren(...rows);
      if (focused) rows.find((row) => row.dataset.key === focused)?.querySelector("button")?.focus({ preventScroll: true });
      tell();
    });
  }

  /** One row for all fetches that brought nothing: whose they are, and a button that shows them. */
  function idleRow(idle) {
    const total = [...idle.values()].reduce((sum, count) => sum + count, 0);
    const whose = [...idle].sort((a, b) => b[1] - a[1]).map(([client, count]) => `${client ?? "–"} ${count}`).join(", ");
    const toggle = () => ((showsIdle = !showsIdle), redraw());
    const text = `${showsIdle ? "Fold" : "Show"} ${total} ${total === 1 ? "fetch" : "fetches"} with nothing new`;
    return h("tr", { class: "idle", "data-key": "idle" }, h("td", { colspan: 6, title: whose }, h("button", { type: "button", class: "plain link", onclick: toggle }, text), ` of ${whose}`));
  }

  function rowOf(exchange) {
    if (exchange.row) {
      exchange.row.classList.toggle("chosen", exchange.key === chosen);
      return exchange.row;
    }
    const failed = exchange.errors.length || exchange.took_ms === null;
    exchange.row = h(
      "tr",
      { "data-key": exchange.key, class: failed ? "failed" : null, onclick: () => choose(exchange) },
      h("td", { class: "mono" }, clock(exchange.at_ms)),
      h("td", { title: exchange.client_id }, exchange.client_id ?? "–"),
      h("td", { class: "mono number" }, took(exchange.took_ms)),
      h("td", { title: exchange.request }, h("button", { type: "button", class: "plain" }, exchange.request)),
      h("td", { class: "outcome", title: exchange.answer }, exchange.answer),
      h("td", null, exchange.sequences.map((each) => chip(each))),
    );
    exchange.row.classList.toggle("chosen", exchange.key === chosen);
    return exchange.row;
  }

  function chip(each) {
    const toggle = (event) => {
      event.stopPropagation();
      only(wanted.sequence === each.number ? 0 : each.number, `${each.kind} of ${each.subject}`);
    };
    const style = `chip hue-${each.number % 6}`;
    return h("button", { type: "button", class: style, title: `Only the ${each.kind} of ${each.subject}`, onclick: toggle }, `${each.kind} ${each.number}`);
  }

  function only(number, name) {
    wanted.sequence = number;
    sequence.replaceChildren(
      ...(number ? [h("button", { type: "button", class: "chip", onclick: () => only(0, "") }, `only the ${name} ✕`)] : []),
    );
    showClientsAlone();
    redraw();
  }

  /** Only what comes on the connection of a client: the one that it has now. */
  function onlyConnection(client) {
    wanted.connection = client ? connectionOf(client) : "";
    const name = client ? `connection ${client.connection} of node ${client.node}` : "";
    connection.replaceChildren(
      ...(client ? [h("button", { type: "button", class: "chip", onclick: () => onlyConnection(null) }, `only ${name} ✕`)] : []),
    );
    ofClient.replaceChildren(...(client ? [clientFacts(client)] : []));
    showClientsAlone();
    redraw();
  }

  /** A file of what fits now, also where it is not among the rows: lines of that of all, whose exchanges others of them tell of. */
  async function saveFitting() {
    const fit = new Set(kept.filter((each) => matches(each, wanted)).map((each) => each.key));
    const wantedOnes = new Set(kept.filter((each) => fit.has(each.key)).map(connectionOf));
    let found = 0;
    try {
      const answer = await fetch(`${base}saved.exchanges`);
      if (!answer.ok) throw new Error(`the explorer answers ${answer.status}`);
      const run = new Map();
      const lines = (await answer.text()).split("\n").filter((line) => {
        if (!line) return false;
        const item = JSON.parse(line);
        if ("kbroker-exchanges" in item) run.set(item.node, item.run ?? "");
        const place = { ...item, run: run.get(item.node) ?? "" };
        if ("exchange" in item) {
          const fits = fit.has(keyOf(place));
          found += fits;
          return fits;
        }
        return !("connection" in item) || wantedOnes.has(connectionOf(place));
      });
      const link = h("a", { href: URL.createObjectURL(new Blob([`${lines.join("\n")}\n`])), download: "saved.exchanges" });
      link.click();
      URL.revokeObjectURL(link.href);
      saved = `${found} saved${fit.size > found ? `, ${fit.size - found} are kept no more` : ""}`;
    } catch (error) {
      saved = `nothing is saved: ${error.message}`;
    }
    tell();
  }

  function onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tr");
    if (event.key === "Escape" && chosen) return close();
    if (!step || !row || row.parentElement !== body) return;
    event.preventDefault();
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.querySelector("button")?.focus();
    next?.click();
  }

  function close() {
    const row = [...body.children].find((each) => each.dataset.key === chosen);
    chosen = null;
    details.hidden = true;
    row?.classList.remove("chosen");
    row?.querySelector("button")?.focus();
  }

  async function choose(exchange) {
    chosen = exchange.key;
    for (const row of body.children) row.classList.toggle("chosen", row.dataset.key === chosen);
    const closing = h("button", { type: "button", class: "close", "aria-label": "Close the request", onclick: close }, "✕");
    try {
      const answer = await fetch(`${base}exchange?node=${exchange.node}&run=${encodeURIComponent(exchange.run)}&number=${exchange.exchange}`);
      if (chosen !== exchange.key) return;
      const told = answer.ok ? await answer.json() : null;
      details.replaceChildren(closing, ...(told ? detailsOf(told) : [h("p", null, "It is kept no more.")]));
      details.scrollTop = 0;
    } catch (error) {
      details.replaceChildren(closing, h("p", { class: "problem" }, `The explorer does not answer: ${error.message}`));
    }
    if (!details.hidden) return;
    details.hidden = false; // the list has less room from now on: the row that was chosen stays in sight
    [...body.children].find((row) => row.dataset.key === chosen)?.scrollIntoView({ block: "nearest" });
  }

  const source = new EventSource(`${base}events`);
  source.addEventListener("open", () => tell());
  source.addEventListener("error", () => tell("the explorer does not answer; trying again"));
  source.addEventListener("exchange", (event) => {
    const exchange = JSON.parse(event.data);
    exchange.key = keyOf(exchange);
    const run = `${exchange.node}/${exchange.run}`;
    if (exchange.exchange <= (latest.get(run) ?? 0)) return; // told again after a break
    latest.set(run, exchange.exchange);
    exchange.text = [exchange.client_id, exchange.request, exchange.answer, exchange.principal, exchange.peer, ...exchange.groups, ...Object.keys(exchange.topics)].join(" ").toLowerCase();
    kept.push(exchange);
    if (kept.length >= KEPT + SPARE) forget();
    if (paused) {
      missed += 1;
      tell();
    } else redraw();
  });
  source.addEventListener("skipped", (event) => {
    const { counts, why } = JSON.parse(event.data);
    for (const count of Object.values(counts)) skipped += count;
    reasons.add(why);
    tell();
  });
  source.addEventListener("nodes", (event) => {
    const why = Object.entries(JSON.parse(event.data).silent);
    silent = why.map(([address, text]) => (text.includes(address) ? text : `${address}: ${text}`)).join(" · ");
    tell();
  });
  onEnd?.(() => {
    source.close();
    clients.close();
  });
}

function detailsOf(told) {
  const from = told.peer ? `from ${told.peer} on ${told.listener}, ${told.principal}${told.software === "unknown" ? "" : `, ${told.software}`}` : "";
  return [
    h("h2", null, `${told.api} version ${told.version}`),
    h("p", { class: "summary" }, `${told.request} → ${told.answer}`),
    told.explanations.map((text) => h("p", { class: "explanation" }, text)),
    h("p", { class: "quiet" }, `Connection ${told.connection} of node ${told.node} ${from}. Correlation id ${told.correlation_id}. ${clock(told.at_ms)}, ${took(told.took_ms)}.`),
    told.is_redacted ? h("p", { class: "quiet" }, "Secrets were overwritten in the bytes.") : null,
    tree("Request", told.request_fields),
    told.answer_fields ? tree("Answer", told.answer_fields) : h("p", { class: "problem" }, `No answer: ${told.answer}`),
  ]
    .flat()
    .filter(Boolean);
}

function tree(title, fields) {
  const cut = fields.missing ? `, ${fields.missing} of them were cut and are zeros here` : "";
  return h(
    "div",
    null,
    h("h3", null, `${title}, ${fields.size} bytes${cut}`),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `Fields of the ${title.toLowerCase()}` },
      h(
        "table",
        { class: "fields" },
        h("thead", null, h("tr", null, ["At", "Bytes", "Field"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", null, fields.rows.map(field)),
      ),
    ),
    fields.problem ? h("p", { class: "problem" }, fields.problem) : null,
  );
}

function field(row) {
  const bytes = row.bytes.match(/../g) ?? [];
  const shown = bytes.slice(0, 8).join(" ") + (row.stop - row.start > 8 && bytes.length ? " …" : "");
  return h(
    "tr",
    null,
    h("td", { class: "mono number" }, String(row.start)),
    h("td", { class: "mono bytes", title: bytes.join(" ") }, shown),
    h("td", { class: `mono depth-${Math.min(row.depth, 9)}` }, row.text),
  );
}
