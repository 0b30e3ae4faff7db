// The protocol explorer: requests and answers of the nodes as they happen. The page itself is that of `kbroker watch`.

import { get } from "../api.js";
import { fill, h } from "../dom.js";

export const show = (main, params, scope) => showIn(main, params, scope);

export async function showIn(main, params, scope, options = {}) {
  // Whether it may be seen is asked first: a stream of events cannot tell why it is refused.
  await get("explorer/nodes", {}, scope.signal);
  const [{ showExplorer }] = await Promise.all([import("../../explorer/explorer.js"), style()]);
  if (scope.over) return;
  const box = h("div");
  fill(main, box);
  showExplorer(box, { base: "api/explorer/", onEnd: (end) => scope.onEnd(end), words: params.filter ?? "", ...options });
}

let loaded = null;
const style = () => (loaded ??= new Promise((resolve) => {
  const link = h("link", { rel: "stylesheet", href: "explorer/explorer.css", onload: resolve, onerror: resolve });
  document.head.append(link);
}));
