// Keeps a page fresh while it is looked at: it is fetched again each so many seconds, which main says
// in data-refresh, until a page comes that does not. Without scripts every page works; it is then as
// old as its date says. Of a page with a part in data-live only that is put in: somebody waits for
// it, and the page that says why it will not come. Else nothing moves while somebody is at work in main: with a form, an open fold, a selection,
// or the focus within.
"use strict";
(() => {
  const main = document.querySelector("main[data-refresh]");
  if (!main) return;
  const part = main.querySelector("[data-live]") ?? main;
  const told = main.querySelector("[data-told]");
  const open = () => part === main && main.querySelector("details[open], form");
  const busy = () => document.hidden || open() || part.contains(document.activeElement) || !getSelection().isCollapsed;
  const timer = setInterval(async () => {
    if (busy()) return;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      const failed = part !== main && answer.status === 422;
      if ((!answer.ok && !failed) || busy()) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (failed) {
        clearInterval(timer);
        main.replaceChildren(...page.querySelector("main").childNodes);
        document.title = page.title;
        return;
      }
      const next = page.querySelector(part === main ? "main[data-refresh]" : "[data-live]");
      if (!next) return;
      if (told && page.title !== document.title) told.textContent = page.querySelector("h1").textContent;
      part.replaceChildren(...next.childNodes);
      document.title = page.title;
      if (!page.querySelector("main[data-refresh]")) clearInterval(timer);
    } catch {
      // The service is away: the page stays as it is, with its date.
    }
  }, 1000 * main.dataset.refresh);
})();
