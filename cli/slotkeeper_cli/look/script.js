// Conveniences of all pages: relative times, one switch of the zone, copies, and what stays over a refresh of a part.
(() => {
  "use strict";
  // A browser may refuse a file its storage.
  const stored = (access) => { try { return access() } catch { return null } };
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  let zone = stored(() => localStorage.getItem("zone")) === "UTC" ? "UTC" : local;

  // A formatter is slow to make, and a page may have thousands of times.
  const made = new Map();
  function partsOf(at, locale, options) {
    const key = zone + locale + Object.keys(options);
    if (!made.has(key)) made.set(key, new Intl.DateTimeFormat(locale, { timeZone: zone, ...options }));
    return Object.fromEntries(made.get(key).formatToParts(at).map((part) => [part.type, part.value]));
  }

  // The short name of the zone at a time: CET in Europe, EST in America, GMT+9 elsewhere.
  function nameOf(at) {
    const names = ["en-GB", "en-US"].map((locale) => partsOf(at, locale, { timeZoneName: "short" }).timeZoneName);
    return names.find((name) => !/^GMT[+-]/.test(name)) || names[0];
  }

  const parts = (at) => partsOf(at, "en-GB", { hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit",
                                               hour: "2-digit", minute: "2-digit", second: "2-digit" });

  function exact(at) {
    const of = parts(at);
    return `${of.year}-${of.month}-${of.day} ${of.hour}:${of.minute}:${of.second}`;
  }

  function relative(at, now) {
    let left = Math.floor(Math.abs(now - at) / 1000), text = "";
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
      const amount = Math.floor(left / size);
      if (amount) text += `${text ? " " : ""}${amount} ${unit}`;
      else if (text) break;
      left -= amount * size;
      if (text.includes(" ", text.indexOf(" ") + 1)) break;
    }
    return !text ? "now" : at > now ? `in ${text}` : `${text} ago`;
  }

  // Changes the data of a text node alone, which no observer of children reports.
  const write = (element, text) => { if (element.textContent !== text) element.firstChild.data = text };

  function showAges() {
    const now = new Date();
    for (const element of document.querySelectorAll("time[datetime]:not([data-exact])")) {
      write(element, relative(new Date(element.dateTime), now));
    }
  }

  function showTimes() {
    for (const element of document.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      element.title = `${exact(at)} ${nameOf(at)}`;
      if ("exact" in element.dataset) write(element, exact(at));
    }
    for (const element of document.querySelectorAll("svg [data-at]")) {
      const at = new Date(Number(element.dataset.at) * 1000), of = parts(at), { form } = element.dataset;
      const { month, day } = partsOf(at, "en-US", { month: "short", day: "2-digit" });
      const minute = `${of.hour}:${of.minute}`, whole = `${exact(at)} ${nameOf(at)}`;
      write(element, { day: `${month} ${day}`, minute, second: `${minute}:${of.second}`, exact: whole }[form]);
    }
    for (const element of document.querySelectorAll("[data-zone]")) {
      write(element, `times in ${nameOf(new Date())}`);
      element.disabled = local === "UTC";
    }
    showAges();
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-zone], [data-copy]");
    if (!button) return;
    if ("zone" in button.dataset) {
      zone = zone === "UTC" ? local : "UTC";
      stored(() => localStorage.setItem("zone", zone === "UTC" ? "UTC" : "local"));
      return showTimes();
    }
    let text = "copied";
    try { await navigator.clipboard.writeText(button.dataset.copy) } catch { text = "select it" }
    const before = button.textContent;
    write(button, text);
    setTimeout(() => write(button, before), 1500);
  });

  // A part that is replaced: what is open, checked, typed and focused stays, by the ids of elements.
  const kept = new Map();
  let focused = "";
  const keep = (event) => {
    const { id, type, checked, value, open } = event.target;
    if (id) kept.set(id, type === "checkbox" ? { checked } : open === undefined ? { value } : { open });
  };
  for (const name of ["input", "change", "toggle"]) document.addEventListener(name, keep, true);
  document.addEventListener("focusin", (event) => { focused = event.target.id });
  document.addEventListener("pointerdown", () => { focused = "" });
  const restore = (root) => {
    for (const element of [root, ...root.querySelectorAll("[id]")]) {
      if (kept.has(element.id)) Object.assign(element, kept.get(element.id));
      const lost = focused && element.id === focused && document.activeElement === document.body;
      if (lost) element.focus({ preventScroll: true });
    }
  };
  new MutationObserver((changes) => {
    const added = changes.flatMap((change) => [...change.addedNodes]).filter((node) => node.querySelectorAll);
    added.forEach(restore);
    if (added.length) showTimes();
  }).observe(document.documentElement, { childList: true, subtree: true });
  setInterval(showAges, 5000);
  showTimes();
})();
