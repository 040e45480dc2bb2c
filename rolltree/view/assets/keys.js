// Keys that work on every page, and the theme. Pages add their own through the server.
(() => {
  const stored = () => document.cookie.match(/(?:^|; )rolltree-theme=(dark|light)/)?.[1];
  window.rolltreeTheme = () => {
    const dark = !document.body.classList.contains("body--dark");
    document.cookie = `rolltree-theme=${dark ? "dark" : "light"}; path=/; max-age=31536000; samesite=lax`;
    Quasar.Dark.set(dark);
  };
  const typing = (at) => at.closest("input, textarea, select, [contenteditable], .q-select");
  const rows = () => [...document.querySelectorAll("a.row-link")].filter((a) => a.offsetParent);
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const here = all.indexOf(document.activeElement);
    all[Math.min(Math.max(here + by, 0), all.length - 1)].focus();
  };
  const click = (selector) => document.querySelector(selector)?.click();
  const keys = {
    "/": () => document.querySelector(".search-field input")?.focus(),
    "?": () => click(".help-button"),
    t: () => window.rolltreeTheme(),
    j: () => move(1),
    k: () => move(-1),
    g: () => click("a.home-link"),
    u: () => click("a.up-link"),
    s: () => click("a.search-link"),
    f: () => click("a.findings-link"),
  };
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  window.rolltreeStored = stored;
})();
