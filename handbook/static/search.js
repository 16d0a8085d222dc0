// Finds the parts of all pages that have every word that is asked for. An entry of INDEX (index.js) is
// address, page, heading, text and rank. Nothing is fetched, so it works in a folder, too.
"use strict";

const MOST = 40;
const AROUND = 90; // characters shown before and after the first word that is found

const box = document.querySelector("#q");
const said = document.querySelector("#said");
const found = document.querySelector("#found");

const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter((word) => word !== "");

// How well a text has a word: 0 not at all, 1 inside another word, 2 at the beginning of one, 3 as it is.
function fit(text, word) {
  let best = 0;
  for (let at = text.indexOf(word); at >= 0 && best < 3; at = text.indexOf(word, at + 1)) {
    const begins = at === 0 || !/[\p{L}\p{N}_]/u.test(text[at - 1]);
    const ends = !/[\p{L}\p{N}_]/u.test(text[at + word.length] ?? " ");
    best = Math.max(best, begins && ends ? 3 : begins ? 2 : 1);
  }
  return best;
}

// A heading counts more than the page's name, and that more than the text.
function score([, page, heading, text, rank], words, asked) {
  let sum = 0;
  for (const word of words) {
    const inHeading = fit(heading, word);
    const inText = fit(text, word);
    const inPage = fit(page, word);
    if (inHeading + inText + inPage === 0) return 0;
    sum += 8 * inHeading + 3 * inPage + inText;
  }
  if (heading === asked) sum += 60;
  return sum + 4 * rank;
}

// Adds a text to an element, with the words marked in it.
function addMarked(element, text, words) {
  const lower = text.toLowerCase();
  let from = 0;
  while (from < text.length) {
    let at = text.length;
    let length = 0;
    for (const word of words) {
      const place = lower.indexOf(word, from);
      if (place >= 0 && (place < at || (place === at && word.length > length))) {
        at = place;
        length = word.length;
      }
    }
    element.append(text.slice(from, at));
    if (length > 0) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(at, at + length);
      element.append(mark);
    }
    from = at + Math.max(length, 1);
  }
}

function excerpt(text, words) {
  const lower = text.toLowerCase();
  const places = words.map((word) => lower.indexOf(word)).filter((place) => place >= 0);
  const at = places.length > 0 ? Math.min(...places) : 0;
  const from = at > AROUND ? text.indexOf(" ", at - AROUND) + 1 : 0;
  const part = text.slice(from, at + 2 * AROUND).trim();
  return (from > 0 ? "… " : "") + part + (at + 2 * AROUND < text.length ? " …" : "");
}

function item([address, page, heading, text], words) {
  const element = document.createElement("li");
  const link = document.createElement("a");
  link.href = address;
  addMarked(link, heading, words);
  element.append(link);
  if (page !== heading) {
    const where = document.createElement("span");
    where.className = "where";
    where.textContent = page;
    element.append(" ", where);
  }
  if (text !== "") {
    const paragraph = document.createElement("p");
    addMarked(paragraph, excerpt(text, words), words);
    element.append(paragraph);
  }
  return element;
}

const LOWER = INDEX.map((entry) => entry.map((part) => (typeof part === "string" ? part.toLowerCase() : part)));

function search() {
  const asked = box.value.trim().toLowerCase();
  const words = wordsOf(asked);
  const hits = words.length === 0 ? [] : LOWER
    .map((entry, number) => [score(entry, words, asked), number])
    .filter(([sum]) => sum > 0)
    .sort(([one, first], [other, second]) => other - one || first - second);
  found.replaceChildren(...hits.slice(0, MOST).map(([, number]) => item(INDEX[number], words)));
  const many = hits.length > MOST ? `The first ${MOST} of ${hits.length} places` : `${hits.length} place${hits.length === 1 ? "" : "s"}`;
  said.textContent = words.length === 0 ? "Write one word or several above." : `${many} for “${box.value.trim()}”.`;
}

box.value = new URLSearchParams(location.search).get("q") ?? "";
box.addEventListener("input", search);
box.form.addEventListener("submit", (event) => {
  event.preventDefault();
  history.replaceState(null, "", `?q=${encodeURIComponent(box.value)}`);
  search();
});
search();
