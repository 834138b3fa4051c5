package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const (
	// openPages is how many pages are open at a time, each on a separate connection.
	openPages = 100
	// pageTimeout is how long a page may be open.
	pageTimeout = 5 * time.Minute
	// firstPaint is the time from the start of the navigation until the browser has painted
	// something, in ms (https://www.w3.org/TR/paint-timing/).
	firstPaint = `performance.getEntriesByName("first-contentful-paint").map(e => e.startTime)[0] || 0`
)

// consoleVisitor is an operator who has signed in, without a browser.
type consoleVisitor struct {
	site  string // the console's address
	roots *x509.CertPool
	jar   http.CookieJar
	api   *operatorapi.Client
}

// measureConsole opens the console's pages beside the whole fleet.
func (b *agents) measureConsole(ctx context.Context) {
	before := b.used()
	v := b.signIn(ctx)
	defer func() { _ = v.api.Close() }()
	client := v.connection()
	for id, path := range map[string]string{"console.page": "/", "console.search": "/?find=" + crowd.Name(b.Agents/2)} {
		var took []float64
		for range b.Looks {
			start := time.Now()
			lines, closePage := v.open(ctx, client, path)
			for lines.Scan() { // to its end
			}
			run.Check(lines.Err())
			closePage()
			took = append(took, run.Milliseconds(time.Since(start)))
		}
		b.Add(id, run.Median(took))
	}
	b.measurePaint(ctx, v)
	b.measureUpdates(ctx, v)
	b.measurePages(ctx, v, before.Resident)
}

func (b *agents) signIn(ctx context.Context) *consoleVisitor {
	file := b.sys.Dir + "/operator.json"
	run.Must(b.sys.ControlPlane(ctx, "operator", "create", "bench", "--role", administration.RoleAdmin, "-o", file))
	v := &consoleVisitor{
		roots: x509.NewCertPool(), jar: run.Must(cookiejar.New(nil)),
		api: run.Must(operatorapi.NewClient(run.Must(administration.LoadCredentials(file)), "bench")),
	}
	v.roots.AppendCertsFromPEM(run.Must(os.ReadFile(b.sys.DataDir() + "/ca.pem")))
	made := v.code(ctx)
	v.site = strings.TrimSuffix(made.Address, "/enter")
	r := run.Must(http.NewRequestWithContext(ctx, http.MethodPost, made.Address, strings.NewReader(url.Values{"code": {made.Code}}.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp := run.Must(v.connection().Do(r)) // follows the redirect to the fleet
	run.Check(resp.Body.Close())
	if resp.StatusCode != http.StatusOK || strings.HasSuffix(resp.Request.URL.Path, "/enter") {
		run.Failf("sign in: %s at %s", resp.Status, resp.Request.URL)
	}
	return v
}

// code returns a code, and the address that takes it.
func (v *consoleVisitor) code(ctx context.Context) operatorapi.ConsoleCode {
	return run.Must(operatorapi.CreateConsoleCode.Do(ctx, v.api, operatorapi.ConsoleCodeInput{}))
}

// connection returns a client with a separate connection in the operator's session.
func (v *consoleVisitor) connection() *http.Client {
	return &http.Client{Jar: v.jar, Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: v.roots, MinVersion: tls.VersionTLS13},
	}}
}

// open returns the lines of a page, or of the live part of one, until it is closed.
func (v *consoleVisitor) open(ctx context.Context, client *http.Client, path string) (lines *bufio.Scanner, closePage func()) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	resp := run.Must(client.Do(run.Must(http.NewRequestWithContext(ctx, http.MethodGet, v.site+path, http.NoBody))))
	if resp.StatusCode != http.StatusOK || resp.Request.URL.String() != v.site+path {
		run.Failf("%s: %s at %s", path, resp.Status, resp.Request.URL)
	}
	return bufio.NewScanner(resp.Body), func() { cancel(); _ = resp.Body.Close() } // it was cancelled
}

// awaitLine reads until a line has the words.
func awaitLine(lines *bufio.Scanner, words string) {
	for lines.Scan() {
		if strings.Contains(lines.Text(), words) {
			return
		}
	}
	run.Failf("the page ended, and did not show %q: %w", words, lines.Err())
}

// measureUpdates counts from the answer to a change until an open page shows it.
func (b *agents) measureUpdates(ctx context.Context, v *consoleVisitor) {
	agent, slowest := crowd.Name(0), 0.0
	lines, closePage := v.open(ctx, v.connection(), "/live/fleet?find="+agent)
	defer closePage()
	awaitLine(lines, agent)
	for i := range b.Looks {
		value := fmt.Sprintf("change-%d-end", i)
		run.Must(operatorapi.LabelAgent.Do(ctx, v.api, operatorapi.LabelAgentInput{
			Agent: agent, Body: operatorapi.LabelAgentBody{Set: map[string]string{"bench": value}},
		}))
		start := time.Now()
		awaitLine(lines, value)
		slowest = max(slowest, run.Milliseconds(time.Since(start)))
	}
	b.Add("console.update", slowest)
}

// measurePages looks at the control plane's memory with many open pages, and after them.
func (b *agents) measurePages(ctx context.Context, v *consoleVisitor, before int64) {
	var closeAll []func()
	for range openPages {
		lines, closePage := v.open(ctx, v.connection(), "/live/fleet")
		awaitLine(lines, crowd.Name(0)[:len("bench-")])
		closeAll = append(closeAll, closePage)
	}
	b.Add("console.memory.pages", run.Mebibytes(b.used().Resident-before))
	for _, closePage := range closeAll {
		closePage()
	}
	run.Rest(ctx, b.Closed)
	b.Add("console.memory", run.Mebibytes(b.used().Resident-before))
}

// measurePaint loads the fleet's page in a real Chromium, and takes when it first painted. The
// control plane's CA is not in its store, and its certificate is that of the requests before.
func (b *agents) measurePaint(ctx context.Context, v *consoleVisitor) {
	ctx, stop := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(run.Must(exec.LookPath("chromium"))), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(b.sys.Dir+"/chromium"),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("ignore-certificate-errors", true))...)
	defer stop()
	ctx, stop = chromedp.NewContext(ctx)
	defer stop()
	made := v.code(ctx)
	run.Check(chromedp.Do(ctx, chromedp.Navigate(made.Address+"#"+made.Code), chromedp.WaitVisible("#code")))
	run.Must(chromedp.RunResponse(ctx, chromedp.Click(`//button[text()="Sign in"]`)))
	var painted []float64
	for range b.Looks {
		run.Check(chromedp.Do(ctx, chromedp.Navigate(v.site+"/"), chromedp.WaitVisible("table")))
		b.Await(ctx, pageTimeout, askEvery, func() {
			ms := run.Must(chromedp.Run(ctx, chromedp.Evaluate[float64](firstPaint)))
			if ms == 0 {
				run.Failf("nothing was painted")
			}
			painted = append(painted, ms)
		})
	}
	b.Add("console.paint", run.Median(painted))
}
