// Copies commands and secrets, and saves secrets as files. Buttons are hidden where this cannot run:
// browsers have a clipboard only for pages with TLS, or of this machine.
if (navigator.clipboard) document.documentElement.classList.add("copies");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy], button[data-file]");
  if (!button) return;
  const text = button.closest(".copyable").querySelector("code").textContent;
  if (button.dataset.file) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text]));
    link.download = button.dataset.file;
    link.click();
    URL.revokeObjectURL(link.href);
    return;
  }
  const status = button.nextElementSibling;
  status.textContent = await navigator.clipboard.writeText(text).then(() => "Copied", () => "The browser does not allow it");
  setTimeout(() => { status.textContent = ""; }, 3000);
});
