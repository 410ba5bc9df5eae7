// Ask the built site's own search for words that readers look for, and compare the first page that it shows:
// node docs/check_search.mjs build/site
import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";

const FIRST = {
  escalated: "trust",
  approve: "trust",
  blocked: "trust",
  "reset trust": "trust",
  stuck: "detection",
  loop: "detection",
  nudge: "detection",
  retry: "guard",
  approval: "guard",
  "claude code": "connect",
  hooks: "connect",
  uninstall: "install",
  pip: "install",
  kafka: "operating",
  "environment variables": "operating",
  duckdb: "history",
  install: "install",
  "publish events": "events",
  "open circuit": "trust",
};

// The scripts of the search page without the page.
const site = process.argv[2];
const page = createContext({ _ready() {}, _removeChildren() {}, _: (text) => text, SPHINX_HIGHLIGHT_ENABLED: false });
page.window = page.document = page;
page.getElementById = () => null;
for (const script of ["_static/documentation_options.js", "_static/language_data.js", "_static/searchtools.js", "searchindex.js"]) {
  runInContext(readFileSync(`${site}/${script}`, "utf8"), page);
}
const found = runInContext("(query) => Search._performSearch(...Search._parseQuery(query))", page);

let wrong = 0;
for (const [query, expected] of Object.entries(FIRST)) {
  const pages = found(query).reverse().map(([name]) => name); // the page shows the last one first
  if (pages[0] !== expected) {
    wrong += 1;
    console.error(`a search for "${query}" finds first ${[...new Set(pages)].slice(0, 4).join(", ") || "nothing"}, and not ${expected}`);
  }
}
process.exit(wrong ? 1 : 0);
