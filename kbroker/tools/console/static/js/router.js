// Addresses within the page: #/topic?name=orders. What is looked for in records never becomes part of one.

export function parse(hash) {
  const [path, text = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path || "overview", params: Object.fromEntries(new URLSearchParams(text)) };
}

export function href(path, params) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== null && value !== undefined && value !== "" && value !== false) given.set(name, String(value));
  }
  const text = given.toString();
  return text ? `#/${path}?${text}` : `#/${path}`;
}

const LINKS = {
  record: (each) => href("topic", { name: each.topic, from: "offset", at: each.offset, partitions: each.partition, open: true }),
  broken: (each) =>
    href("topic", { name: each.topic, from: "offset", at: each.offset, partitions: each.partition < 0 ? "" : each.partition, broken: true }),
  client: (each) => href("explorer", { filter: each.client_id }),
  transaction: (each) => href("transactions", { filter: each.transactional_id }),
  blocked: (each) => href("topic", { name: each.topic, tab: "groups" }),
  topic: (each) => href("topic", { name: each.topic }),
  topics: () => href("topics", { troubled: true, internal: true }),
  broker: (each) => href("broker", { id: each.broker }),
};

/** The page to which a link of a finding leads. */
export const hrefOfFinding = (each) => LINKS[each.kind](each);

export function go(path, params) {
  location.hash = href(path, params);
}

/** Remember a state in the address without drawing the page anew: of the page that is there, if it has not been left meanwhile. */
export function note(path, params) {
  if (parse(location.hash).path === path) history.replaceState(null, "", href(path, params));
}

/** The life of one page: what it started ends when another is shown. */
export class Scope {
  #ends = [];
  #abort = new AbortController();

  get signal() {
    return this.#abort.signal;
  }

  get over() {
    return this.#abort.signal.aborted;
  }

  onEnd(action) {
    this.#ends.push(action);
  }

  /** Call `action` now and then, but only while the page can be seen, and not before the last call is done. */
  every(ms, action) {
    let busy = false;
    const timer = setInterval(async () => {
      if (busy || this.over || document.visibilityState !== "visible") return;
      busy = true;
      try {
        await action();
      } finally {
        busy = false;
      }
    }, ms);
    this.onEnd(() => clearInterval(timer));
  }

  end() {
    this.#abort.abort();
    for (const action of this.#ends.splice(0)) action();
  }
}
