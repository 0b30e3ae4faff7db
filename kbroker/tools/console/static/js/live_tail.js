// The live tail: records as they come. It can be paused, and goes on where it was; what is not shown is counted.

import { query } from "./api.js";
import { badge, fill, h, link } from "./dom.js";
import { number, plural } from "./format.js";
import { href } from "./router.js";

const KEPT = 300;
const AT_ONCE = 10; // lines that are made before the time is looked at
const FRAME_MS = 6; // of a frame's 16, so that keys and clicks have theirs

export class LiveTail {
  constructor({ params, bar, list, onStop }) {
    this.params = params;
    this.list = list;
    this.positions = "";
    this.shown = 0;
    this.notShown = 0;
    this.left = 0;
    this.rates = [];
    this.waiting = []; // records and gaps, the oldest first, until a frame has room for them
    this.frame = 0;
    this.state = h("span", null, badge("connecting", "quiet"));
    this.text = h("span", { class: "quiet", role: "status" });
    this.pause = h("button", { type: "button", onclick: () => (this.source ? this.#pause() : this.start()) }, "Pause");
    fill(bar, this.state, this.text, h("div", { class: "spacer" }), this.pause, h("button", { type: "button", onclick: onStop }, "Leave live"));
  }

  start() {
    const { from, at, until, latest_per_key, ...rest } = this.params;
    this.source = new EventSource(query("records/tail", { ...rest, goon: this.positions }));
    this.source.addEventListener("records", (event) => this.#take(event));
    this.source.addEventListener("trouble", (event) => {
      this.#tell("trouble", "bad");
      fill(this.text, JSON.parse(event.data).error);
    });
    this.source.addEventListener("open", () => this.pausing || this.#tell("live", "good"));
    this.source.addEventListener("error", () => {
      if (this.source?.readyState === EventSource.CLOSED) {
        this.#stop();
        this.#tell("stopped", "bad");
        fill(this.text, "The console does not let it go on; what has come is below.");
      } else {
        this.#tell("connecting again", "warn");
      }
    });
    fill(this.pause, "Pause");
  }

  #tell(text, kind) {
    fill(this.state, badge(text, kind));
  }

  /** Stop; before the first event it is not known where the tail is: that one, which has no records, is waited for. */
  #pause() {
    if (this.positions) return this.#stop();
    this.pausing = !this.pausing;
    this.#tell(...(this.pausing ? ["pausing", "warn"] : ["connecting", "quiet"]));
    fill(this.pause, this.pausing ? "Go on" : "Pause");
  }

  #stop() {
    this.pausing = false;
    this.source?.close();
    this.source = null;
    this.#tell("paused", "warn");
    fill(this.pause, "Go on");
  }

  #take(event) {
    const told = JSON.parse(event.data);
    this.positions = event.lastEventId;
    if (this.pausing) this.#stop();
    const now = performance.now();
    this.rates.push([now, told.seen]);
    while (this.rates.length && this.rates[0][0] < now - 5000) this.rates.shift();
    this.shown += told.rows.length;
    for (const each of told.not_shown) this.notShown += each.count;
    this.waiting.push(...told.rows, ...told.not_shown, ...told.notes);
    // Where no frame comes, as in a tab behind others, the oldest leave before they are drawn.
    for (const each of this.waiting.splice(0, Math.max(this.waiting.length - KEPT, 0))) this.left += isRecord(each) ? 1 : 0;
    this.#drawSoon();
    const seen = this.rates.reduce((sum, [, count]) => sum + count, 0);
    const seconds = Math.max((now - this.rates[0][0]) / 1000, 1);
    const parts = [`${number(Math.round(seen / seconds))} records/s`, `${number(this.shown)} shown`];
    if (this.notShown) parts.push(`${number(this.notShown)} not shown: too many at once`);
    if (this.left) parts.push(`${number(this.left)} older ones have left the list`);
    fill(this.text, parts.join(" · "));
  }

  #drawSoon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      const until = performance.now() + FRAME_MS;
      while (this.waiting.length && performance.now() < until) this.#draw();
      if (this.waiting.length) this.#drawSoon();
    });
  }

  /** Put a few of those that wait on top of the list. */
  #draw() {
    const rows = [];
    for (const each of this.waiting.splice(0, AT_ONCE)) {
      if (isRecord(each)) {
        rows.push(each);
        continue;
      }
      this.left += this.list.prepend(rows.splice(0), KEPT);
      this.list.gap(...(typeof each === "string" ? [each] : this.#gap(each)));
    }
    this.left += this.list.prepend(rows, KEPT);
  }

  #gap({ partition, first, last, count }) {
    const where = `offsets ${number(first)} to ${number(last)} of partition ${partition}`;
    return [
      `${plural(count, "record")} not shown, ${where}. `,
      link("Read them", href("topic", { name: this.params.topic, from: "offset", at: first, partitions: partition })),
    ];
  }

  end() {
    this.source?.close();
    this.source = null;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }
}

const isRecord = (each) => each.offset !== undefined;
