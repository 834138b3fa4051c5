// Keeps a form that was sent after its session had ended, until the person has signed in again: in
// this tab alone, for an hour, and without passwords.
const slot = "draft", life = 3600e3;
const page = location.pathname + location.search;
const signedIn = document.querySelector("header [name=csrf]") !== null;
const person = document.querySelector("header .who")?.textContent ?? "";

const fieldsOf = form => [...form.elements].filter(f => f.name && f.name !== "csrf" && f.type !== "password");

addEventListener("submit", event => {
  const form = event.target;
  if (!signedIn || form.method !== "post") return;
  sessionStorage.removeItem(slot);
  if (form.closest("header")) return; // signs out
  const fields = fieldsOf(form).map(f => [f.name, f.type === "checkbox" ? f.checked : f.value]);
  sessionStorage.setItem(slot, JSON.stringify({page, person, action: form.getAttribute("action"), fields, at: Date.now(), refused: false}));
});

function restore(draft) {
  const form = [...document.forms].find(f => f.getAttribute("action") === draft.action);
  if (!form) return;
  const values = Map.groupBy(draft.fields, ([name]) => name); // rows of a form have the same names
  for (const field of fieldsOf(form)) {
    const [next] = values.get(field.name)?.splice(0, 1) ?? [];
    if (!next) continue;
    if (field.type === "checkbox") field.checked = next[1];
    else field.value = next[1];
    const folded = field.closest("details");
    if (folded && field.value) folded.open = true;
  }
  document.getElementById("restored").hidden = false;
}

const draft = JSON.parse(sessionStorage.getItem(slot));
if (draft && document.body.classList.contains("refused-form")) {
  sessionStorage.setItem(slot, JSON.stringify({...draft, refused: true}));
} else if (draft && signedIn) {
  const here = draft.page === page && draft.person === person;
  if (!draft.refused || here || Date.now() - draft.at > life) sessionStorage.removeItem(slot); // it has arrived, or does now
  if (draft.refused && here && Date.now() - draft.at <= life) restore(draft);
}
