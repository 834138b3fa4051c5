package browser

import (
	"context"
	"fmt"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// find is a script that returns the first element of a CSS selector, or of an XPath expression that
// begins with //, if it is visible. chromedp's own queries use its copy of the page's nodes. On a
// busy machine it loses that when a page replaces another, and they wait for good.
const find = `(what => {
	const found = what.startsWith("//")
		? document.evaluate(what, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue
		: document.querySelector(what);
	return found && found.checkVisibility() ? found : null;
})(%q)`

// Await waits until an element is visible.
func (b *Browser) Await(what string) {
	b.t.Helper()
	await.Until(b.t, what+" is visible", func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		found, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(find, what)+" !== null"))
		return err == nil && found // an error: the page is being replaced
	})
}

// with returns what a script makes of a visible element e.
func with[T any](b *Browser, what, script string) T {
	b.t.Helper()
	b.Await(what)
	return Get(b, chromedp.Evaluate[T](`(e => { `+script+` })(`+fmt.Sprintf(find, what)+`)`))
}

// point is a place in the window.
type point struct{ X, Y float64 }

// click returns the action that clicks a visible element with the mouse.
func (b *Browser) click(what string) chromedp.Action[chromedp.Void] {
	b.t.Helper()
	at := with[point](b, what, `
		e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getClientRects()[0];
		return {x: r.x + r.width / 2, y: r.y + r.height / 2};`)
	return chromedp.MouseClickXY(at.X, at.Y)
}

// Click clicks an element that opens no other page at once.
func (b *Browser) Click(what string) {
	b.t.Helper()
	b.Do(b.click(what))
}

// Follow clicks what leads to another page, and waits for that.
func (b *Browser) Follow(what string) {
	b.t.Helper()
	b.leave(what, b.click(what))
}

// Enter presses the Enter key in a field, and waits for the page to which that leads.
func (b *Browser) Enter(field string) {
	b.t.Helper()
	with[bool](b, field, `e.focus(); return true;`)
	b.leave(field, chromedp.KeyEvent("\r"))
}

func (b *Browser) leave(what string, by chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, by)
	require.NoError(b.t, err, what)
}

// Fill sets the value of a field, as if it was typed.
func (b *Browser) Fill(field, value string) {
	b.t.Helper()
	with[bool](b, field, fmt.Sprintf(`
		e.value = %q;
		for (const name of ["input", "change"]) e.dispatchEvent(new Event(name, {bubbles: true}));
		return true;`, value))
}

// Value returns the value of a field.
func (b *Browser) Value(field string) string {
	b.t.Helper()
	return with[string](b, field, `return e.value;`)
}

// Text returns the text of the page.
func (b *Browser) Text() string {
	b.t.Helper()
	return Get(b, chromedp.Evaluate[string](`document.body.innerText`))
}
