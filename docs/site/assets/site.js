// Search, copy buttons, the phone's menu and diagrams. Pages can be read without it.
"use strict";
(() => {
  const script = document.currentScript;
  const root = new URL(".", script.src);

  const load = name => new Promise((loaded, failed) => {
    const s = document.createElement("script");
    s.src = new URL(name, root);
    s.onload = loaded;
    s.onerror = () => failed(new Error(`${s.src} cannot be loaded`));
    document.head.append(s);
  });

  const element = (name, text, properties) =>
    Object.assign(document.createElement(name), {textContent: text}, properties);

  // The menu and the contents are open where there is room for them.
  const menu = document.querySelector("button.menu");
  menu.hidden = false;
  document.documentElement.classList.add("scripted");
  menu.addEventListener("click", () => {
    const open = menu.getAttribute("aria-expanded") === "false";
    menu.setAttribute("aria-expanded", open);
    document.getElementById("menu").classList.toggle("open", open);
  });
  const contents = document.querySelector("details.contents");
  if (contents) contents.open = matchMedia("(min-width: 75rem)").matches;

  // Copy buttons need a page over HTTPS, or on this machine.
  if (navigator.clipboard) {
    for (const pre of document.querySelectorAll("pre:not(.mermaid)")) {
      const code = pre.textContent;
      const button = element("button", "Copy", {type: "button", className: "copy"});
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
      const block = element("div", "", {className: "block"});
      pre.replaceWith(block);
      block.append(pre, button);
      pre.tabIndex = 0; // it scrolls
    }
  }

  // The index is loaded when the reader turns to the search.
  const form = document.querySelector("header form");
  const field = form.querySelector("input");
  const found = document.getElementById("found");
  form.hidden = false;
  let index;
  const ready = () => index ??= (async () => {
    for (const name of script.dataset.search.split(" ")) await load(name);
    const search = new MiniSearch({
      fields: ["title", "headings", "text"],
      storeFields: ["title", "group", "text"],
      searchOptions: {
        prefix: true, combineWith: "AND", boost: {title: 8, headings: 3},
        fuzzy: term => term.length > 5 ? 0.15 : false,
        boostDocument: id => id.startsWith("adr/") || id.startsWith("contributing/") ? 0.3 : 1,
      },
    });
    search.addAll(pages);
    return search;
  })();
  const excerpt = (text, terms) => {
    const at = Math.min(...terms.map(t => text.toLowerCase().indexOf(t)).filter(i => i >= 0), text.length);
    const from = at === text.length ? 0 : Math.max(0, at - 50);
    return (from ? "…" : "") + text.slice(from, from + 150).trim() + "…";
  };
  const show = async () => {
    const query = field.value.trim();
    const hits = query ? (await ready()).search(query).slice(0, 12) : [];
    if (query !== field.value.trim()) return; // more was typed in the meantime
    found.hidden = !query;
    found.replaceChildren(...hits.map(hit => {
      const a = element("a", "", {href: new URL(hit.id, root)});
      a.append(element("strong", hit.title), " ", element("small", hit.group), element("span", excerpt(hit.text, hit.terms)));
      return a;
    }));
    if (!hits.length) found.append(element("p", "Nothing found"));
  };
  field.addEventListener("focus", ready);
  field.addEventListener("input", show);
  form.addEventListener("submit", async event => {
    event.preventDefault();
    await show();
    found.querySelector("a")?.click();
  });
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") found.hidden = true;
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    }
  });
  document.addEventListener("click", event => {
    if (!form.contains(event.target)) found.hidden = true;
  });

  document.addEventListener("DOMContentLoaded", () => {
    if (typeof mermaid === "undefined") return;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    mermaid.initialize({startOnLoad: false, securityLevel: "strict", theme: dark ? "dark" : "neutral"});
    mermaid.run();
  });
})();
