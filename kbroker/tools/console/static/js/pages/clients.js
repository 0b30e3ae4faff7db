// The clients that are connected, with program, user and TLS: the explorer with its table of clients open.

import { showIn } from "./explorer.js";

export const show = (main, params, scope) => showIn(main, params, scope, { clientsOpen: true });
