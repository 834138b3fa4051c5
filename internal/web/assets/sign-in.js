// Takes the code out of the address: what follows # is not sent to any server.
function takeCode() {
  const code = location.hash.slice(1);
  if (code) {
    history.replaceState(null, "", location.pathname);
    document.getElementById("code").value = code;
  }
}
takeCode();
addEventListener("hashchange", takeCode); // the link was opened in a tab with this page
