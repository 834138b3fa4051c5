// Says that an open page has lost its server, and since when, or its session. Only the browser
// notices.
let since = null, signedOut = false;
function show() {
  const lost = document.getElementById("lost"), ended = document.getElementById("signed-out");
  if (!lost) return;
  lost.hidden = since === null || signedOut;
  ended.hidden = !signedOut;
  if (since) lost.querySelector("time").textContent = since.toISOString().slice(0, 19).replace("T", " ") + " UTC";
}
document.addEventListener("htmx:sse:error", event => {
  since ??= new Date();
  if (event.detail.status) signedOut = event.detail.status === 401;
  show();
});
document.addEventListener("htmx:sse:after:connection", () => {
  since = null;
  signedOut = false;
  show();
});
