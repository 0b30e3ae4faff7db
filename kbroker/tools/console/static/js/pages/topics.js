// Topics: the list of any length, the tree by name, and a new topic.

import { get, getWanted, post, session } from "../api.js";
import { openForm } from "../dialog.js";
import { badge, field, fill, h, link, problem, select, tick, toast } from "../dom.js";
import { bytes, bytesRate, clock, duration, moment, number, plural, rate } from "../format.js";
import { PagedTable } from "../paged_table.js";
import { go, href, note } from "../router.js";

const STATES = { ok: ["in sync", "good"], "under-replicated": ["under-replicated", "warn"], offline: ["no leader", "bad"] };

export async function show(main, params, scope) {
  const state = {
    filter: params.filter ?? "",
    internal: params.internal === "true",
    troubled: params.troubled === "true",
    view: params.view === "tree" ? "tree" : "list",
  };
  const count = h("span", { class: "quiet", role: "status" }, "asking for all topics …"); // 100,000 take a while
  const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter topics by name" });
  filter.dataset.filter = "";
  filter.value = state.filter;
  const internal = tick("internal", state.internal);
  const troubled = tick("under-replicated", state.troubled);
  const body = h("div", { class: "grow" });
  const views = h("div", { class: "segments", role: "group", "aria-label": "How topics are shown" });
  let shown = null;

  const told = (answer) => {
    const fits = answer.total === answer.all ? plural(answer.all, "topic") : `${number(answer.total)} of ${number(answer.all)}`;
    fill(count, `${fits}, as of ${clock(answer.at)}`);
  };
  const order = { sort: params.sort ?? "name", descending: params.descending === "true" };
  let timer = 0;
  const draw = async ({ keep = false } = {}) => {
    clearTimeout(timer); // what was typed counts already; a branch that is opened meanwhile stays open
    note("topics", { ...state, view: state.view === "tree" ? "tree" : "", ...(shown?.order ?? {}) });
    if (keep && shown) {
      // The same table with other rows: what the reader has in hand stays.
      await shown.reload().catch((error) => error.name === "AbortError" || fill(body, problem(error, draw)));
      return;
    }
    shown?.end?.();
    fill(
      views,
      [["list", "List"], ["tree", "Tree"]].map(([view, text]) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(state.view === view),
            onclick: () => {
              state.view = view;
              draw();
            },
          },
          text,
        ),
      ),
    );
    troubled.element.hidden = state.view === "tree";
    shown = state.view === "tree" ? new TopicTree(state, scope, count) : list(state, scope, order, told);
    fill(body, shown.element);
    try {
      await shown.reload();
    } catch (error) {
      if (error.name !== "AbortError") fill(body, problem(error, draw));
    }
  };
  filter.addEventListener("input", () => {
    state.filter = filter.value;
    clearTimeout(timer);
    timer = setTimeout(() => draw({ keep: true }), 150);
  });
  internal.input.addEventListener("change", () => {
    state.internal = internal.input.checked;
    draw({ keep: true });
  });
  troubled.input.addEventListener("change", () => {
    state.troubled = troubled.input.checked;
    draw({ keep: true });
  });
  scope.onEnd(() => {
    clearTimeout(timer);
    shown?.end?.();
  });
  fill(
    main,
    h(
      "div",
      { class: "page-head" },
      h("h1", null, "Topics"),
      h("div", { class: "spacer" }),
      session.writes ? h("button", { type: "button", class: "primary", onclick: newTopic }, "New topic") : null,
    ),
    h("div", { class: "bar" }, filter, views, internal.element, troubled.element, h("div", { class: "spacer" }), count),
    body,
  );
  await draw();
  scope.every(10000, async () => {
    if (state.view === "list") await shown.reload({ keep: true }).catch(() => {});
  });
}

function list(state, scope, order, onTotal) {
  let lagging = new Map(); // topic -> its groups with lag, and their lags together
  let now = 0;
  const askLags = async () => {
    const told = await get("groups/lags", {}, scope.signal);
    const found = new Map();
    for (const { topics } of told.rows) {
      for (const [topic, lag] of Object.entries(topics)) {
        const [groups, sum] = found.get(topic) ?? [0, 0];
        if (lag) found.set(topic, [groups + 1, sum + lag]);
      }
    }
    lagging = found;
  };
  const made = new PagedTable({
    label: "Topics",
    order,
    onTotal,
    empty: () => (state.filter || state.troubled ? "No topic fits." : "There are no topics yet."),
    columns: [
      { title: "Topic", sort: "name", class: "name", cell: (t) => link(h("bdi", null, t.name), href("topic", { name: t.name }), { title: t.name }) },
      { title: "State", class: "minor", cell: (t) => badge(...STATES[t.state]) },
      { title: "Partitions", sort: "partitions", number: true, class: "minor", cell: (t) => number(t.partitions) },
      { title: "Replicas", sort: "replicas", number: true, class: "roomy", cell: (t) => number(t.replicas) },
      { title: "Records", number: true, class: "minor", cell: (t) => number(t.records) },
      { title: "Records / s", number: true, class: "roomy", cell: (t) => rate(t.records_rate) },
      { title: "Bytes / s", sort: "bytes_rate", number: true, class: "minor", cell: (t) => bytesRate(t.bytes_rate) },
      { title: "Size", sort: "size", number: true, class: "minor", cell: (t) => bytes(t.size) },
      { title: "Cleanup", class: "minor", cell: (t) => t.cleanup_policy?.replace(",", ", ") ?? "–" },
      { title: "Last write", number: true, cell: (t) => ago(t.last_write, now) },
      { title: "Group lag", number: true, cell: (t) => lagOf(lagging.get(t.name), t.name) },
    ],
    load: async (offset, limit, sorted) => {
      // Groups may not be seen, or may be slow to be asked: topics are shown without them then.
      const asked = askLags().catch(() => {});
      const told = await get(
        "topics",
        {
          filter: state.filter,
          internal: state.internal,
          troubled: state.troubled,
          offset,
          limit,
          sort: sorted.sort,
          descending: sorted.descending,
          counts: true,
        },
        scope.signal,
      );
      now = told.now;
      await asked;
      return told;
    },
  });
  return made;
}

/** How long ago a time was; the time itself where the mouse is. */
const ago = (at, now) =>
  at === null || at === undefined ? "–" : at < 0 ? "never" : h("span", { title: moment(at) }, at > now + 1000 ? moment(at, { millis: false }) : `${duration(now - at)} ago`);

/** The lag of a topic's groups together, and how many lag. */
const lagOf = (found, name) =>
  found
    ? link(number(found[1]), href("topic", { name, tab: "groups" }), { title: `${plural(found[0], "group")} lagging`, "aria-label": `Lag of ${plural(found[0], "group")}: ${number(found[1])}` })
    : "–";

/** Names as a tree, a level at a time. */
class TopicTree {
  constructor(state, scope, count) {
    this.state = state;
    this.scope = scope;
    this.count = count;
    this.element = h("div", { class: "card tree" });
  }

  async reload() {
    const { list: made, answer } = await this.#level("");
    fill(this.count, `as of ${clock(answer.at)}`);
    fill(this.element, answer.total ? made : h("p", { class: "empty" }, "No topic fits."));
  }

  async #level(prefix) {
    const wanted = () => ({ prefix, filter: this.state.filter, internal: this.state.internal });
    const answer = await getWanted("topics/tree", wanted, this.scope.signal);
    const rest = answer.total - answer.rows.length;
    const made = h(
      "ul",
      null,
      answer.rows.map((row) => h("li", null, row.topic ? this.#leaf(row, prefix) : this.#branch(row, prefix))),
      rest ? h("li", { class: "quiet" }, `and ${number(rest)} more: filter by name`) : null,
    );
    return { list: made, answer };
  }

  #leaf(row, prefix) {
    return h(
      "div",
      { class: "leaf" },
      link(row.prefix.slice(prefix.length) || row.prefix, href("topic", { name: row.prefix }), { title: row.prefix }),
      h("span", { class: "quiet" }, `${plural(row.partitions, "partition")}, ${bytes(row.size)}`),
    );
  }

  #branch(row, prefix) {
    const inner = h("div");
    const details = h(
      "details",
      null,
      h(
        "summary",
        null,
        h("span", { class: "strong" }, `${row.prefix.slice(prefix.length)}…`),
        h("span", { class: "quiet" }, ` ${plural(row.topics, "topic")}, ${bytes(row.size)}`),
      ),
      inner,
    );
    details.addEventListener("toggle", async () => {
      if (!details.open || inner.childElementCount) return;
      try {
        fill(inner, (await this.#level(row.prefix)).list);
      } catch (error) {
        if (error.name !== "AbortError") fill(inner, problem(error));
      }
    });
    return details;
  }
}

/** A field for the name of a topic that is new. */
export const topicName = () =>
  h("input", { type: "text", required: true, maxlength: 249, pattern: "[a-zA-Z0-9._\\-]+", spellcheck: "false", autocomplete: "off" });

const BY_BROKERS = "as the brokers have it";

function newTopic() {
  const name = topicName();
  const count = () => h("input", { type: "number", min: 1, placeholder: BY_BROKERS });
  const text = () => h("input", { type: "text", placeholder: BY_BROKERS, spellcheck: "false" });
  const [partitions, replicas, inSync, retention, size] = [count(), count(), count(), text(), text()];
  const policy = select(
    [["", BY_BROKERS], ["delete", "delete old records"], ["compact", "compact: keep the last of each key"], ["compact,delete", "compact, and delete old ones"]],
    "",
  );
  const configs = h("textarea", { rows: 3, spellcheck: "false", placeholder: "segment.bytes=64MiB" });
  const named = () => ({ "cleanup.policy": policy.value, "retention.ms": retention.value, "retention.bytes": size.value, "min.insync.replicas": inSync.value });
  openForm("New topic", {
    wide: true,
    action: "Create",
    fields: [
      field("Name", name, "Letters, digits, dots, dashes and underscores"),
      h("div", { class: "columns" }, field("Partitions", partitions), field("Replicas", replicas), field("Min. in-sync replicas", inSync)),
      h(
        "div",
        { class: "columns" },
        field("Cleanup policy", policy),
        field("Retention time", retention, "Such as 12h or 7d; -1 keeps all"),
        field("Retention size", size, "Of a partition, such as 10GiB"),
      ),
      field("Other configs", configs, "A line each: name=value"),
    ],
    send: async () => {
      const given = Object.fromEntries(Object.entries(named()).filter(([, value]) => value.trim()));
      const told = await post("topic/create", {
        name: name.value,
        partitions: partitions.value,
        replicas: replicas.value,
        configs: { ...given, ...pairs(configs.value) },
      });
      toast(told.done);
      go("topic", { name: name.value });
    },
  });
}

/** Lines of name=value as an object. */
export function pairs(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`“${line}” is not of the form name=value`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
