// The keys / and Ctrl-K lead to the search field in the header.
document.addEventListener("keydown", (e) => {
  const field = document.getElementById("search");
  const typing = e.target.closest?.("input, textarea, select, [contenteditable]");
  const asked = (e.key === "k" && (e.ctrlKey || e.metaKey)) || (e.key === "/" && !typing && !e.ctrlKey && !e.altKey && !e.metaKey);
  if (!field || !asked) return;
  e.preventDefault();
  field.select();
});
