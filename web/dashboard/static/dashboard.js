/* What the pages do beyond plain HTML: times in the reader's zone, live regions, keys, orders without a reload.
   Every page works without this file. */
"use strict";

(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const plural = (count, one) => `${count.toLocaleString("en")} ${one}`;

  // --- times ---------------------------------------------------------------------------------------------------

  const zone = zoneOf($("#zone")?.dataset.zone || new URLSearchParams(location.search).get("tz"));
  const full = formatOf({ year: "numeric", month: "2-digit", day: "2-digit" });
  const short = formatOf({});
  const day = (at) => full.format(at).slice(0, 10);

  function zoneOf(asked) {
    try {
      return new Intl.DateTimeFormat("en", { timeZone: asked || undefined }).resolvedOptions().timeZone;
    } catch {
      return "UTC";
    }
  }

  function formatOf(more) {
    return new Intl.DateTimeFormat("sv-SE", {
      timeZone: zone, hour: "2-digit", minute: "2-digit", second: "2-digit", ...more,
    });
  }

  function ago(at) {
    const seconds = (Date.now() - at) / 1000;
    if (Math.abs(seconds) < 1) return "now";
    return seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
  }

  /* The same words as `span` in render.py. */
  function span(seconds) {
    const whole = Math.round(seconds);
    if (whole < 90) return `${whole} s`;
    const minutes = Math.floor(whole / 60), hours = Math.floor(whole / 3600), days = Math.floor(whole / 86400);
    if (minutes < 90) return `${minutes} min`;
    if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
    return hours % 24 && days < 10 ? `${days} d ${hours % 24} h` : `${days} d`;
  }

  /* On a phone a row of a table is a card, and its cells say which column they are. */
  function nameCells(within = document) {
    for (const table of $$("main table", within)) {
      const names = $$("thead th", table).map((one) => one.textContent);
      for (const row of $$("tbody tr", table)) [...row.cells].forEach((cell, at) => { cell.dataset.name = names[at] || ""; });
    }
  }

  function tellTimes(within = document) {
    nameCells(within);
    for (const time of $$("time[data-show]", within)) {
      const at = new Date(time.dateTime);
      const text = {
        ago: () => ago(at),
        at: () => full.format(at),
        clock: () => short.format(at),
        recent: () => (day(at) === day(new Date()) ? short : full).format(at),
      }[time.dataset.show]();
      if (time.textContent !== text) time.textContent = text;
      time.title = `${full.format(at)} ${zone}`;
    }
  }

  // --- live regions --------------------------------------------------------------------------------------------

  const state = $("#live"), pause = $("#pause"), said = $("#said");
  const unseen = new Map(); // id of a region -> changes that it does not show yet
  let paused = false, fetching = false, lostAt = 0;
  let queued = null; // ids of regions that are to be put in place after the fetch under way, held or not

  const regions = () => $$("[data-region]").filter((one) => one.id);
  const idsOfRegions = () => regions().map((one) => one.id);
  const topicsOf = (region) => (region.dataset.topics || "").split(" ").filter(Boolean);

  function show(name, text) {
    if (!state) return;
    state.hidden = false;
    state.dataset.state = name;
    if (state.textContent !== text) state.textContent = text;
    document.documentElement.dataset.live = name === "live" ? "open" : name;
  }

  function showLive() {
    lostAt = 0;
    const news = Math.max(0, ...unseen.values());
    if (paused) show("paused", news ? `Paused, ${plural(news, "new")}` : "Paused");
    else show("live", $("#freshness.state-blocked") ? "Connected" : "Live"); // the server may lack its data
  }

  function lost() {
    lostAt ||= Date.now();
    const since = (Date.now() - lostAt) / 1000;
    if (since > 20) show("stale", `Not live for ${span(since)}`);
    else show("reconnecting", "Reconnecting");
  }

  /* Rows must not move under a pointer that is about to press, or away from the focus. */
  function isHeld(region) {
    const pointed = matchMedia("(hover: hover)").matches && region.matches(":hover");
    return paused || pointed || region.contains(document.activeElement);
  }

  function changed(changes, everything) {
    for (const region of regions()) {
      const count = topicsOf(region).reduce((sum, topic) => sum + (changes[topic] || 0), 0);
      if (count || everything) unseen.set(region.id, (unseen.get(region.id) || 0) + Math.max(1, count));
    }
    refresh();
  }

  /* Fetches the page once and puts those regions in place that have changed and are not held; of `still`, if it is held,
     only the rows that stand there. */
  async function refresh(forced = [], still = null) {
    const wanted = regions().filter((one) => unseen.has(one.id) && (forced.includes(one.id) || !isHeld(one)));
    for (const one of regions()) if (unseen.has(one.id) && !wanted.includes(one)) announce(one);
    if (paused) showLive();
    if (!wanted.length) return;
    if (fetching) {
      queued = [...(queued || []), ...forced];
      return;
    }
    fetching = true;
    const taken = wanted.map((one) => [one, unseen.get(one.id)]);
    try {
      const answer = await fetch(location.href, { headers: { "HX-Request": "true", Accept: "text/html" } });
      if (answer.status === 401) return signedOut();
      if (!answer.ok) throw new Error(`${answer.status}`);
      const text = await answer.text();
      for (const [one, count] of taken) {
        if (!one.isConnected || (isHeld(one) && !forced.includes(one.id))) continue;
        if (one === still && isHeld(one)) {
          await inPlace(one, text);
          tellTimes(one);
          continue;
        }
        unseen.set(one.id, unseen.get(one.id) - count);
        if (!unseen.get(one.id)) unseen.delete(one.id);
        await htmx.swap({ text, target: one, swap: "outerMorph", select: `#${one.id}`, sourceElement: one });
        tellTimes($(`#${one.id}`) || document);
      }
    } catch {
      lost();
    } finally {
      fetching = false;
    }
    if (queued) {
      const waited = queued;
      queued = null;
      await refresh(waited);
    }
  }

  function announce(region) {
    let button = $(":scope > .news", region);
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "news";
      button.addEventListener("click", () => {
        refresh([region.id]).then(() => ($("[data-open]", region) || $("a, button", region))?.focus());
      });
      region.prepend(button);
    }
    button.textContent = `Show ${plural(unseen.get(region.id), "new")}`;
  }

  function signedOut() {
    $("#stream")?.remove();
    show("stale", "Signed out: reload to sign in");
  }

  function connect() {
    const topics = [...new Set(regions().flatMap(topicsOf))];
    if (!topics.length || !window.htmx) return;
    const stream = document.createElement("div");
    stream.id = "stream";
    stream.hidden = true;
    const asked = new URLSearchParams([...topics.map((one) => ["topic", one]), ["from", state.dataset.from]]);
    stream.setAttribute("hx-sse:connect", `/live?${asked}`);
    stream.setAttribute("hx-trigger", "turn, every 5s"); // a refused first request is tried again
    stream.setAttribute("hx-swap", "none");
    stream.addEventListener("open", showLive);
    stream.addEventListener("change", (event) => {
      showLive();
      changed(JSON.parse(event.detail.data), false);
    });
    stream.addEventListener("resync", () => {
      showLive();
      changed({}, true);
    });
    stream.addEventListener("bye", lost);
    stream.addEventListener("htmx:sse:after:connection", () => { if (lostAt) changed({}, true); });
    stream.addEventListener("htmx:sse:error", (event) => (event.detail.status === 401 ? signedOut() : lost()));
    stream.addEventListener("htmx:sse:close", lost);
    stream.addEventListener("htmx:response:error", (event) => {
      const status = event.detail.ctx?.response?.status;
      if (status === 401) signedOut();
      else if (status === 503) show("stale", `Not live: ${event.detail.ctx.text || "the server is busy"}`);
      else lost();
    });
    document.body.append(stream);
    show("reconnecting", "Connecting");
    htmx.process(stream);
    takeTurns(stream);
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", `${paused}`);
      pause.textContent = paused ? "Resume" : "Pause";
      showLive();
      if (!paused) refresh(idsOfRegions());
    });
    for (const event of ["pointerout", "focusout"]) document.addEventListener(event, () => setTimeout(settle, 60));
  }

  const TURNS = 4;

  /* Over HTTP/1.1 a browser opens six connections to a server, for all its windows together. Four that can be seen are
     live; another one waits until one of these is closed or hidden. */
  function takeTurns(stream) {
    let giveBack = null, asked = null;

    function ask() {
      asked = new AbortController();
      const queue = asked;
      const waiting = setTimeout(() => show("stale", `Not live: ${TURNS} other windows are`), 2000);
      for (let at = 0; at < TURNS; at++) {
        navigator.locks.request(`trustfold.live.${at}`, { signal: queue.signal }, () => {
          if (queue.signal.aborted) return null;
          queue.abort(); // it waits for no other turn
          clearTimeout(waiting);
          return new Promise((release) => {
            giveBack = release;
            stream.dispatchEvent(new Event("turn"));
          });
        }).catch(() => clearTimeout(waiting));
      }
    }

    function leave() {
      asked?.abort();
      giveBack?.();
      giveBack = null;
    }

    if (location.protocol !== "http:" || !navigator.locks) {
      stream.dispatchEvent(new Event("turn"));
      return;
    }
    for (const event of ["htmx:before:request", "htmx:sse:before:connection"]) {
      stream.addEventListener(event, (one) => { if (!giveBack) one.preventDefault(); });
    }
    document.addEventListener("visibilitychange", () => (document.hidden ? leave() : ask()));
    if (!document.hidden) ask();
  }

  /* What was held may be shown when the pointer and the focus have gone. */
  function settle() {
    if (!paused && regions().some((one) => unseen.has(one.id) && !isHeld(one))) refresh();
  }

  // --- orders --------------------------------------------------------------------------------------------------

  const UNDO_MS = 6000;
  let pending = null; // the reset that is sent when its time is over

  document.addEventListener("htmx:after:request", (event) => {
    const form = event.target.closest?.("form.orders");
    if (form) ordered(form.closest("[data-row]"));
  });

  /* Shows what an order has changed. The list of its row keeps its places until the pointer and the focus have left. */
  function ordered(row) {
    const list = row?.closest("[data-region]"), at = row?.id;
    for (const one of regions()) unseen.set(one.id, Math.max(1, unseen.get(one.id) || 0));
    const typed = document.activeElement?.matches(":focus-visible");
    if (!typed) document.activeElement?.blur(); // or the list would be held after the pointer has left
    refresh(idsOfRegions(), list).then(() => {
      if (!typed || (document.activeElement && document.activeElement !== document.body)) return;
      $("a, button", document.getElementById(at) || list || document.body)?.focus();
    });
  }

  async function inPlace(list, text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const row of $$("[data-row][id]", list)) {
      if (fresh.getElementById(row.id)) {
        await htmx.swap({ text, target: row, swap: "outerMorph", select: `#${row.id}`, sourceElement: row });
      } else {
        $(".badge", row)?.replaceChildren("✓ done");
        row.classList.add("done");
      }
    }
  }

  /* A reset forgets what was counted, and no order brings that back: it waits, and can be taken back until it is sent. */
  document.addEventListener("submit", (event) => {
    const form = event.target, button = event.submitter;
    if (!form.matches("form.orders") || button?.value !== "reset") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    pending?.send();
    const body = new URLSearchParams(new FormData(form, button)), row = form.closest("[data-row]");
    const undo = document.createElement("button");
    const timer = setTimeout(() => pending.send(), UNDO_MS);
    const end = (...words) => {
      clearTimeout(timer);
      pending = null;
      said.replaceChildren(...words);
    };
    undo.textContent = "Undo";
    undo.addEventListener("click", () => end(`Not done: Reset, ${body.get("key")}`));
    said.replaceChildren(`Reset, ${body.get("key")}: in ${UNDO_MS / 1000} s `, undo);
    pending = {
      send: async () => {
        end("…");
        const headers = { "HX-Request": "true" };
        const answer = await fetch("/orders", { method: "POST", body, headers, keepalive: true }).catch(() => null);
        const told = answer && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("said");
        said.replaceChildren(...(told ? told.childNodes : ["Not done: the server does not answer"]));
        ordered(row);
      },
    };
  }, true);
  addEventListener("pagehide", () => pending?.send());

  // --- keys ----------------------------------------------------------------------------------------------------

  const help = $("#keys"), helpButton = $("#keys-open"), switchBox = $("#keys-on");
  let going = 0;

  const keysAreOn = () => localStorage.getItem("trustfold.keys") !== "off";

  function step(by) {
    const rows = $$("[data-row]");
    if (!rows.length) return;
    const at = rows.findIndex((one) => one.hasAttribute("data-current") || one.contains(document.activeElement));
    const to = rows[Math.min(rows.length - 1, Math.max(0, at + by))] || rows[0];
    for (const one of rows) one.toggleAttribute("data-current", one === to);
    to.scrollIntoView({ block: "nearest" });
    ($("[data-open]", to) || to).focus({ preventScroll: true });
  }

  const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => {
      const field = $("[type=search][data-filter]") || $("[data-filter]");
      field?.closest("details")?.setAttribute("open", "");
      field?.focus();
    },
    f: () => $("[data-search]")?.focus(),
    p: () => pause && !pause.hidden && pause.click(),
    "?": () => help?.showModal(),
    g: () => { going = Date.now(); },
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typing && event.key === "Escape") typing.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || help?.open || !keysAreOn()) return;
    if (Date.now() - going < 1500) {
      going = 0;
      const link = $(`a[data-go="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
        return;
      }
    }
    if (Object.hasOwn(KEYS, event.key)) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });

  document.addEventListener("focusin", (event) => {
    const row = event.target.closest?.("[data-row]");
    for (const one of $$("[data-row][data-current]")) one.toggleAttribute("data-current", one === row);
    row?.setAttribute("data-current", "");
  });

  document.addEventListener("click", (event) => {
    const row = event.target.closest?.("[data-row]");
    if (!row || event.target.closest("a, button, input, summary, label, form") || `${getSelection()}`) return;
    $("[data-open]", row)?.click();
  });

  // --- start ---------------------------------------------------------------------------------------------------

  tellTimes();
  const zoneName = $("#zone");
  if (zoneName) zoneName.textContent = zone;
  if (helpButton) {
    helpButton.hidden = false;
    helpButton.addEventListener("click", () => help.showModal());
    switchBox.checked = keysAreOn();
    switchBox.addEventListener("change", () => localStorage.setItem("trustfold.keys", switchBox.checked ? "on" : "off"));
  }
  // htmx goes through the page in a task that it has queued before this one. Before that it would go through the stream
  // twice, and open it twice; afterwards it must be told of it.
  setTimeout(connect);
  setInterval(() => {
    tellTimes();
    if (lostAt) lost();
  }, 5000);

  /* A link from another site comes without the cookie; a request of our own page has it. */
  const next = $('.sign-in input[name="next"]')?.value;
  if (next && new URLSearchParams(location.search).has("asked")) {
    fetch(next, { headers: { "HX-Request": "true" } }).then((answer) => answer.ok && location.replace(next), () => {});
  }
})();
