"use strict";
// Nearest neighbours from the vectors in this file; makes no network requests.
(function () {
  const SHOWN_MATCHES = 50;
  const NEIGHBOURS = 10;
  const data = JSON.parse(document.getElementById("collection").textContent);
  if (!data) return;
  const [query, status, matches, picked, near] = ["query", "status", "matches", "picked", "near"].map((id) =>
    document.getElementById(id));
  const sentences = data.sentences;
  const lowered = sentences.map((sentence) => sentence.toLowerCase());
  const runs = data.runs.map(unpack);
  let chosen = -1;

  function unpack(run) {
    const bytes = atob(run.vectors);
    const octets = new Uint8Array(bytes.length);
    for (let i = 0; i < bytes.length; i++) octets[i] = bytes.charCodeAt(i);
    const unpacked = { ...run, values: new Int16Array(octets.buffer) };
    unpacked.squares = sentences.map((_, row) => dot(unpacked, row, row));
    return unpacked;
  }

  function dot(run, first, second) {
    const start = first * run.dimensions, other = second * run.dimensions;
    let sum = 0; // exact, because the components are integers
    for (let i = 0; i < run.dimensions; i++) sum += run.values[start + i] * run.values[other + i];
    return sum;
  }

  // The nearest other sentences; ties keep the order of the sentences. The cosine of a zero vector is 0.
  function nearest(run, row) {
    const found = [];
    for (let other = 0; other < sentences.length; other++) {
      if (other === row) continue;
      const size = Math.sqrt(run.squares[row] * run.squares[other]);
      found.push({ other, cosine: size ? dot(run, row, other) / size : 0 });
    }
    found.sort((a, b) => b.cosine - a.cosine || a.other - b.other);
    return found.slice(0, NEIGHBOURS);
  }

  // Texts enter the page as text nodes only, never as markup.
  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function highlighted(sentence, wanted) {
    const at = wanted ? sentence.toLowerCase().indexOf(wanted) : -1;
    if (at < 0) return [sentence];
    const end = at + wanted.length;
    return [sentence.slice(0, at), element("mark", {}, sentence.slice(at, end)), sentence.slice(end)];
  }

  function showMatches(found, wanted) {
    matches.replaceChildren(...found.slice(0, SHOWN_MATCHES).map((row) => {
      const button = element("button", { type: "button", onclick: () => pick(row) }, ...highlighted(sentences[row], wanted));
      button.dataset.row = row;
      return element("li", {}, button);
    }));
  }

  function markChosen() {
    for (const button of matches.querySelectorAll("button"))
      button.setAttribute("aria-current", String(Number(button.dataset.row) === chosen));
  }

  function show(row) {
    chosen = row;
    markChosen();
    picked.textContent = sentences[row];
    const lists = runs.map((run) => nearest(run, row));
    const times = new Map();
    for (const list of lists) for (const one of list) times.set(one.other, (times.get(one.other) || 0) + 1);
    near.replaceChildren(...lists.map((list, i) => column(runs[i], list, times)));
  }

  function column(run, list, times) {
    const items = list.map((one) => {
      const cosine = element("b", {}, one.cosine.toFixed(3));
      const use = () => { query.value = sentences[one.other]; remember(query.value); search(); };
      const button = element("button", { type: "button", onclick: use }, cosine, element("span", {}, sentences[one.other]));
      const alone = runs.length > 1 && times.get(one.other) === 1;
      return element("li", { className: alone ? "alone" : "" }, button);
    });
    const key = document.querySelector(`.keys [data-run="${run.run}"]`).firstElementChild.cloneNode(true);
    const head = element("h3", {}, key);
    return element("div", { className: key.querySelector(".swatch").classList[1] }, head, element("ol", { className: "near" }, ...items));
  }

  function pick(row) {
    remember(sentences[row]);
    show(row);
  }

  // The URL contains the query, so that a link shows the same neighbours.
  function remember(text) {
    history.replaceState(null, "", "#q=" + encodeURIComponent(text));
  }

  function search() {
    const wanted = query.value.trim().toLowerCase();
    const found = [];
    for (let row = 0; row < sentences.length; row++) if (lowered[row].includes(wanted)) found.push(row);
    showMatches(found, wanted);
    if (!found.length) {
      status.textContent = "No sentence contains this. The page contains vectors but no model, so it cannot embed new "
        + "text.";
      picked.textContent = "";
      near.replaceChildren();
      return;
    }
    const shown = found.length > SHOWN_MATCHES ? `, the first ${SHOWN_MATCHES} below` : "";
    status.textContent = `${found.length} of ${sentences.length} sentences contain this${shown}. Pick one:`;
    if (!wanted) status.textContent = `${sentences.length} sentences. Type to filter, or pick one:`;
    const exact = sentences.indexOf(query.value.trim());
    show(exact >= 0 ? exact : found[0]);
  }

  function fromAddress() {
    if (!location.hash.startsWith("#q=")) return false;
    try {
      query.value = decodeURIComponent(location.hash.slice(3));
    } catch {
      return false; // not a URL from this page
    }
    search();
    document.getElementById("neighbours").scrollIntoView();
    return true;
  }

  query.addEventListener("input", () => { remember(query.value); search(); });
  window.addEventListener("hashchange", fromAddress);
  if (!fromAddress()) search();
})();
