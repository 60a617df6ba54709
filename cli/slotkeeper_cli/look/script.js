// Conveniences of all pages: relative times, one switch of the zone, copies, and what stays over a refresh of a part.
(() => {
  "use strict";
  const stored = { get: () => { try { return localStorage.getItem("zone") } catch { return null } },
                   set: (zone) => { try { localStorage.setItem("zone", zone) } catch { /* a file of a strict browser */ } } };
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  let zone = stored.get() === "UTC" ? "UTC" : local;

  // The short name of the zone at a time: CET in Europe, EST in America, GMT+9 elsewhere.
  function nameOf(at) {
    const names = ["en-GB", "en-US"].map((locale) => new Intl.DateTimeFormat(locale, { timeZone: zone, timeZoneName: "short" })
      .formatToParts(at).find((part) => part.type === "timeZoneName").value);
    return names.find((name) => !/^GMT[+-]/.test(name)) || names[0];
  }

  function parts(at) {
    const options = { timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit",
                      hour: "2-digit", minute: "2-digit", second: "2-digit" };
    const found = new Intl.DateTimeFormat("en-GB", options).formatToParts(at);
    return Object.fromEntries(found.map((part) => [part.type, part.value]));
  }

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

  function showTimes() {
    const now = new Date();
    for (const element of document.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime), whole = `${exact(at)} ${nameOf(at)}`;
      write(element, "exact" in element.dataset ? exact(at) : relative(at, now));
      element.title = "exact" in element.dataset ? `${whole}, ${relative(at, now)}` : whole;
    }
    for (const element of document.querySelectorAll("svg [data-at]")) {
      const at = new Date(Number(element.dataset.at) * 1000), of = parts(at);
      const day = new Intl.DateTimeFormat("en-US", { timeZone: zone, month: "short", day: "2-digit" }).format(at);
      const minute = `${of.hour}:${of.minute}`;
      write(element, { day, minute, second: `${minute}:${of.second}`, exact: `${exact(at)} ${nameOf(at)}` }[element.dataset.form]);
    }
    for (const element of document.querySelectorAll("[data-zone]")) {
      write(element, `times in ${nameOf(now)}`);
      element.disabled = local === "UTC";
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-zone], [data-copy]");
    if (!button) return;
    if ("zone" in button.dataset) {
      zone = zone === "UTC" ? local : "UTC";
      stored.set(zone === "UTC" ? "UTC" : "local");
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
      if (focused && element.id === focused && document.activeElement === document.body) element.focus({ preventScroll: true });
    }
  };
  new MutationObserver((changes) => {
    const added = changes.flatMap((change) => [...change.addedNodes]).filter((node) => node.querySelectorAll);
    added.forEach(restore);
    if (added.length) showTimes();
  }).observe(document.documentElement, { childList: true, subtree: true });
  setInterval(showTimes, 5000);
  showTimes();
})();
