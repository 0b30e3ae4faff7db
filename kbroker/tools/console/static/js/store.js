// What a reader has set up for this browser, each user their own: widths, columns, filters with names.

import { session } from "./api.js";

const nameOf = (name) => `${session.user ?? ""}${location.pathname === "/" ? "" : location.pathname.slice(0, -1)}/${name}`; // of each cluster their own

export function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(nameOf(name))) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(nameOf(name), JSON.stringify(value));
  } catch {
    // Then it lasts as long as this page.
  }
}
