package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// axe is axe-core (testdata/axe.LICENSE), which finds violations of WCAG.
//
//go:embed testdata/axe.min.js
var axe string

// Screens are the windows in which pages are looked at.
var Screens = map[string][2]int64{"wide": {1280, 800}, "phone": {390, 844}}

// Screenshots is the environment variable that names a directory for pictures of all pages.
const Screenshots = "PIPEOPS_TEST_SCREENSHOTS"

// patience is how long a page may take on a busy machine.
const patience = 2 * time.Minute

// Browser is a Chromium that reaches loopback alone. It fails the test at the first
// message in a page's console, such as a violation of the Content-Security-Policy.
type Browser struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // chromedp keeps the browser in it
	console console
}

// Open starts a Chromium for the time of a test.
func Open(t *testing.T, more ...chromedp.ExecAllocatorOption) *Browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("Chromium is not installed: make test-all installs it")
	}
	require.Zero(t, os.Geteuid(), "Chromium gets a network namespace, which needs root: run the tests as root")
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.ModifyCmdFunc(apart), chromedp.Flag("proxy-server", "socks5://"+gate), chromedp.Flag("proxy-bypass-list", "<-loopback>"))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), append(opts, more...)...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b := &Browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"))) // the browser ends with this context
	openGate(t, chromedp.FromContext(ctx).Browser.Process().Pid)
	var hearing sync.WaitGroup
	t.Cleanup(hearing.Wait)
	t.Cleanup(stop)
	hearing.Go(b.hear)
	return b
}

// hear fails the test for what a page should not do.
func (b *Browser) hear() {
	defer func() {
		for _, wrong := range b.console.wrong() {
			b.t.Errorf("the console says: %s", wrong)
		}
	}()
	for m, err := range chromedp.Console(b.ctx) {
		if err != nil {
			return
		}
		if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.Type == chromedp.ConsoleException {
			b.console.add(m.Source, m.String())
		}
	}
}

// Lose does something during which the open page loses its server or its session, and allows what
// its console says about that.
func (b *Browser) Lose(during func()) {
	b.t.Helper()
	b.console.lose(true)
	defer b.console.lose(false)
	during()
}

// Do carries out actions.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// Visit loads a page and waits for an element.
func (b *Browser) Visit(url, element string) {
	b.t.Helper()
	b.Do(chromedp.Navigate(url))
	b.Await(element)
}

// Get returns what an action finds out.
func Get[T any](b *Browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	found, err := chromedp.Run(ctx, action)
	require.NoError(b.t, err)
	return found
}

// Resize sets the window's size.
func (b *Browser) Resize(width, height int64) {
	b.t.Helper()
	b.Do(chromedp.EmulateViewport(width, height))
}

// Dark sets whether the person prefers dark pages.
func (b *Browser) Dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(b.t, err)
}

// violation is what axe-core found.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// Accessible fails the test for what axe-core finds on the page.
func (b *Browser) Accessible(page string) {
	b.t.Helper()
	Get(b, chromedp.Evaluate[int](axe+";0"))
	found := Get(b, chromedp.Evaluate[string](
		`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => JSON.stringify(r.violations))`,
		chromedp.EvalAwaitPromise))
	var all []violation
	require.NoError(b.t, json.Unmarshal([]byte(found), &all))
	for _, v := range all {
		for _, n := range v.Nodes {
			assert.Fail(b.t, fmt.Sprintf("%s: %s: %s: %s\n%s", page, v.ID, v.Help, n.HTML, n.FailureSummary))
		}
	}
}

// Fits fails the test if the page is wider than the window: a table scrolls by itself.
func (b *Browser) Fits(page string) {
	b.t.Helper()
	assert.False(b.t, Get(b, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`)), "%s is wider than the window", page)
}

// StaysAt fails the test for each request of the page to another site.
func (b *Browser) StaysAt(site string) {
	b.t.Helper()
	for _, url := range Get(b, chromedp.Evaluate[[]string](`performance.getEntriesByType("resource").map(r => r.name)`)) {
		assert.True(b.t, strings.HasPrefix(url, site+"/"), "%s was requested, which is not of %s", url, site)
	}
}

// Picture keeps a picture of the whole page where the environment asks for it.
func (b *Browser) Picture(name string) {
	b.t.Helper()
	dir := os.Getenv(Screenshots)
	if dir == "" {
		return
	}
	png := Get(b, chromedp.FullScreenshot(100))
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}
