// Says since when an open page has lost its server, which only the browser notices.
let since = null;
function show() {
  const lost = document.getElementById("lost");
  if (!lost) return;
  lost.hidden = since === null;
  if (since) lost.querySelector("time").textContent = since.toISOString().slice(0, 19).replace("T", " ") + " UTC";
}
document.addEventListener("htmx:sse:error", () => {
  since ??= new Date();
  show();
});
document.addEventListener("htmx:sse:after:connection", () => {
  since = null;
  show();
});
