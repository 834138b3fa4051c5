// Filters, pauses and wraps the lines of a log in the page. The form does the same at the server.
const form = document.getElementById("log-form");
const lines = document.getElementById("lines");
const pause = document.getElementById("pause");
const severity = { debug: 0, info: 1, warning: 2, error: 3 };
let held = null; // lines that came during a pause

function matches(line) {
  const find = form.find.value.trim().toLowerCase();
  const text = line.textContent.slice(line.firstElementChild.textContent.length + 1).toLowerCase();
  return (!form.pod.value || line.dataset.pod === form.pod.value) &&
    (!form.level.value || (severity[line.dataset.level] ?? 0) >= severity[form.level.value]) && text.includes(find);
}

function show(line) {
  if (line.dataset.pod) line.hidden = held?.has(line) || !matches(line);
}

function count() {
  const all = [...lines.children].filter((line) => line.dataset.pod && !held?.has(line));
  const shown = all.filter((line) => !line.hidden).length;
  document.getElementById("shown").textContent = `${shown === all.length ? "" : `${shown} of `}${all.length} ${all.length === 1 ? "line" : "lines"}.`;
  if (pause) pause.textContent = held ? `Resume (${held.size} new)` : "Pause";
}

function showAll() {
  [...lines.children].forEach(show);
  count();
}

// The page has no more than what the server has selected.
const selected = { level: form.level.value, pod: form.pod.value };
form.addEventListener("input", (event) => {
  const field = event.target.name;
  if (field === "nowrap") document.getElementById("log").classList.toggle("nowrap", event.target.checked);
  else if (field === "tail" || field === "previous" || selected[field]) form.requestSubmit();
  else showAll();
});

new MutationObserver((changes) => {
  for (const line of changes.flatMap((change) => [...change.addedNodes]).filter((node) => node.dataset?.pod)) {
    held?.add(line);
    if (![...form.pod.options].some((option) => option.value === line.dataset.pod)) form.pod.add(new Option(line.dataset.pod, line.dataset.pod));
    show(line);
  }
  count();
}).observe(lines, { childList: true });

if (pause) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    held = held ? null : new Set();
    showAll();
  });
}
showAll();
