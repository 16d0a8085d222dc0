// Keeps a page fresh while it is looked at: main is fetched again each half minute. Without scripts
// every page works; it is then as old as its date says. Nothing moves while somebody is at work in
// it: with a form, an open fold, a selection, or the focus within.
"use strict";
(() => {
  const main = document.querySelector("main[data-refresh]");
  if (!main) return;
  const open = () => main.querySelector("details[open], form") || main.contains(document.activeElement);
  const busy = () => document.hidden || open() || !getSelection().isCollapsed;
  setInterval(async () => {
    if (busy()) return;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok || busy()) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.querySelector("main[data-refresh]");
      if (!next) return;
      main.replaceChildren(...next.childNodes);
      document.title = page.title;
    } catch {
      // The service is away: the page stays as it is, with its date.
    }
  }, 30000);
})();
