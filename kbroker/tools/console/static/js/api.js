// The server's answers. A request that changes something carries the session's token.

export const session = { csrf: "", user: null, sign_in: false, writes: false, explorer: false, registry: false, faults: false, tables: false, bootstrap: "", cluster: "", clusters: [], version: "" };

class ApiError extends Error {
  constructor(status, text, name) {
    super(text);
    this.status = status;
    this.code = name;
  }
}

export function query(path, params) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== null && value !== undefined && value !== "" && value !== false) {
      given.set(name, value === true ? "1" : String(value));
    }
  }
  const text = given.toString();
  return text ? `api/${path}?${text}` : `api/${path}`;
}

async function answer(response) {
  let document;
  try {
    document = await response.json();
  } catch {
    throw new ApiError(response.status, `the console answered with ${response.status} and no text`);
  }
  if (response.ok) return document;
  if (response.status === 401 && !session.sign_in) window.dispatchEvent(new Event("signed-out"));
  throw new ApiError(response.status, document.error ?? `the console answered with ${response.status}`, document.name);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the console does not answer: is it still running?");
  }
  return answer(response);
}

export const get = (path, params, signal) => ask(query(path, params), { signal });

/** The answer for what is wanted now. One for what was wanted before, by fields that have changed, is an AbortError. */
export async function getWanted(path, wanted, signal) {
  const asked = wanted();
  const isWanted = () => JSON.stringify(asked) === JSON.stringify(wanted());
  const outcome = await get(path, asked, signal).then((told) => ({ told }), (error) => ({ error }));
  if (!isWanted()) throw new DOMException("something else is wanted by now", "AbortError");
  if (outcome.error) throw outcome.error;
  return outcome.told;
}

export const post = (path, body) =>
  ask(`api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": session.csrf },
    body: JSON.stringify(body ?? {}),
  });

export async function loadSession() {
  Object.assign(session, await get("session"));
}
