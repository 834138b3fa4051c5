package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
)

const (
	// openPages is how many pages are open at a time, each on a connection of its own.
	openPages = 100
	// pageTimeout is how long an answer of the console, or an update of a page, may take.
	pageTimeout = 30 * time.Second
	// closedFor is how long after the last page the memory is looked at. Go collects at least every
	// two minutes, and returns memory after that.
	closedFor = 150 * time.Second
	mebibyte  = 1 << 20
)

// consoleVisitor is an operator who has signed in, without a browser.
type consoleVisitor struct {
	site   string // the console's address
	roots  *x509.CertPool
	jar    http.CookieJar
	client *http.Client
	api    *operatorapi.Client
}

// measureConsole opens the console's pages beside the whole fleet.
func (b *agentsBench) measureConsole(ctx context.Context) (err error) {
	before, err := b.look()
	if err != nil {
		return err
	}
	v, err := b.signIn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.api.Close()) }()
	for id, path := range map[string]string{"console.page": "/", "console.search": "/?find=" + crowd.Name(b.Agents/2)} {
		var took []float64
		for range b.Looks {
			start := time.Now()
			if err := v.get(ctx, path); err != nil {
				return err
			}
			took = append(took, milliseconds(time.Since(start)))
		}
		b.Add(id, load.Median(took))
	}
	if err := b.measurePaint(ctx, v); err != nil {
		return err
	}
	if err := b.measureUpdates(ctx, v); err != nil {
		return err
	}
	return b.measurePages(ctx, v, before)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (b *agentsBench) signIn(ctx context.Context) (*consoleVisitor, error) {
	file := b.sys.Dir + "/operator.json"
	if _, err := b.sys.ControlPlane(ctx, "operator", "create", "bench", "--role", operators.RoleAdmin, "-o", file); err != nil {
		return nil, err
	}
	credentials, err := operators.LoadCredentials(file)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(b.sys.DataDir() + "/ca.pem")
	if err != nil {
		return nil, err
	}
	v := &consoleVisitor{roots: x509.NewCertPool()}
	v.roots.AppendCertsFromPEM(ca)
	if v.api, err = operatorapi.NewClient(credentials, "bench"); err != nil {
		return nil, err
	}
	if v.jar, err = cookiejar.New(nil); err != nil {
		return nil, err
	}
	v.client = v.connection()
	return v, v.enter(ctx)
}

// code returns a code, and the address that takes it.
func (v *consoleVisitor) code(ctx context.Context) (operatorapi.ConsoleCode, error) {
	return operatorapi.CreateConsoleCode.Do(ctx, v.api, operatorapi.ConsoleCodeInput{})
}

func (v *consoleVisitor) enter(ctx context.Context) error {
	made, err := v.code(ctx)
	if err != nil {
		return err
	}
	v.site = strings.TrimSuffix(made.Address, "/enter")
	form := strings.NewReader(url.Values{"code": {made.Code}}.Encode())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, made.Address, form)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return v.send(v.client, r) // follows the redirect to the fleet
}

// connection returns a client with a connection of its own in the operator's session.
func (v *consoleVisitor) connection() *http.Client {
	return &http.Client{Jar: v.jar, Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: v.roots, MinVersion: tls.VersionTLS13},
	}}
}

func (v *consoleVisitor) get(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.site+path, http.NoBody)
	if err != nil {
		return err
	}
	return v.send(v.client, r)
}

// send reads the whole answer.
func (v *consoleVisitor) send(client *http.Client, r *http.Request) error {
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Request.URL.String(), v.site+"/") || strings.HasSuffix(resp.Request.URL.Path, "/enter") {
		return fmt.Errorf("%s %s: %s: %.200s", r.Method, r.URL.Path, resp.Status, page)
	}
	return nil
}

// openPage is the live part of a page.
type openPage struct {
	lines  *bufio.Scanner
	cancel context.CancelFunc
	body   io.Closer
}

func (v *consoleVisitor) open(ctx context.Context, client *http.Client, path string) (*openPage, error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.site+path, http.NoBody)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		cancel()
		return nil, err
	}
	p := &openPage{bufio.NewScanner(resp.Body), cancel, resp.Body}
	if resp.StatusCode != http.StatusOK {
		p.close()
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return p, nil
}

// await reads until a line has the words.
func (p *openPage) await(words string) error {
	late := time.AfterFunc(pageTimeout, p.cancel)
	defer late.Stop()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), words) {
			return nil
		}
	}
	return fmt.Errorf("the page ended, or did not show %q within %s: %w", words, pageTimeout, p.lines.Err())
}

func (p *openPage) close() {
	p.cancel()
	_ = p.body.Close() // it was cancelled
}

// measureUpdates counts from the answer to a change until an open page shows it.
func (b *agentsBench) measureUpdates(ctx context.Context, v *consoleVisitor) error {
	agent := crowd.Name(0)
	page, err := v.open(ctx, v.client, "/live/fleet?find="+agent)
	if err != nil {
		return err
	}
	defer page.close()
	if err := page.await(agent); err != nil {
		return err
	}
	var slowest time.Duration
	for i := range b.Looks {
		value := fmt.Sprintf("change-%d-end", i)
		if _, err := operatorapi.LabelAgent.Do(ctx, v.api, operatorapi.LabelAgentInput{
			Agent: agent, Body: operatorapi.LabelAgentBody{Set: map[string]string{"bench": value}},
		}); err != nil {
			return err
		}
		start := time.Now()
		if err := page.await(value); err != nil {
			return err
		}
		slowest = max(slowest, time.Since(start))
	}
	b.Add("console.update", milliseconds(slowest))
	return nil
}

// measurePages looks at the control plane's memory with many open pages, and after them.
func (b *agentsBench) measurePages(ctx context.Context, v *consoleVisitor, before usage) error {
	var pages []*openPage
	closeAll := func() {
		for _, p := range pages {
			p.close()
		}
		pages = nil
	}
	defer closeAll()
	for range openPages {
		p, err := v.open(ctx, v.connection(), "/live/fleet")
		if err != nil {
			return err
		}
		pages = append(pages, p)
		if err := p.await(crowd.Name(0)[:len("bench-")]); err != nil {
			return err
		}
	}
	open, err := b.look()
	if err != nil {
		return err
	}
	b.Add("console.memory.pages", float64(open.resident-before.resident)/mebibyte)
	closeAll()
	if err := b.rest(ctx, b.Closed); err != nil {
		return err
	}
	after, err := b.look()
	if err != nil {
		return err
	}
	b.Add("console.memory", float64(after.resident-before.resident)/mebibyte)
	return nil
}
