// Order of the results of the site's search: pages that explain before references, decisions and the changelog, which only mention a word.
var Scorer = {
  score: ([page, , , , score]) => (/^(api|decisions|design|seeds|changelog|subsystems|architecture|contributing)\b/.test(page) ? score - 30 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
