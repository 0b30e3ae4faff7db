// The explorer as a page of its own.

import { showExplorer } from "./explorer.js";

showExplorer(document.getElementById("explorer"), { base: "" });
