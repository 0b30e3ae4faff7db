// JSON in colours, and members of it by the paths that filters have, too.

import { h } from "./dom.js";

const MOST = 200_000; // letters: more in colour would take the page too long
const PARTS = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;

/** The text as nodes: names, texts, numbers and words, each in a colour of its own. */
export function coloured(text) {
  if (text.length > MOST) return [text];
  const made = [];
  let at = 0;
  for (const found of text.matchAll(PARTS)) {
    const [whole, quoted, colon, digits] = found;
    const kind = quoted ? (colon ? "name" : "text") : digits ? "number" : "word";
    const word = quoted ?? whole;
    made.push(text.slice(at, found.index), h("span", { class: `json-${kind}` }, word));
    at = found.index + word.length;
  }
  return [...made, text.slice(at)];
}

const STEPS = /\.([^.[\]]+)|\[(\d+)\]|\['([^']+)'\]/g;

/** The member of a document at a path such as $.customer.id; undefined if there is none. */
export function member(document, path) {
  let found = document;
  for (const [, name, index, odd] of path.matchAll(STEPS)) found = found?.[name ?? odd ?? Number(index)];
  return found;
}

/** The paths of a document's members that are no objects, not too many and not too deep. */
export function paths(document, begin = "$", depth = 3) {
  if (depth === 0 || document === null || typeof document !== "object" || Array.isArray(document)) return begin === "$" ? [] : [begin];
  return Object.entries(document).flatMap(([name, value]) =>
    paths(value, /^[^.[\]\s=~<>!'"()]+$/.test(name) ? `${begin}.${name}` : `${begin}['${name}']`, depth - 1),
  );
}
