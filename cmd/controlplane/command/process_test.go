package command

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

// register registers a cluster as an agent would, with a token of its own.
func register(ctx context.Context, data datadir.Data, api, name string) error {
	admin, err := operators.Open(ctx, data, nil)
	if err != nil {
		return err
	}
	token, _, err := admin.Tokens.Create(ctx, operators.TokenOptions{Name: "for " + name, Uses: 1, TTL: time.Hour})
	if err = errors.Join(err, admin.Close()); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return registerWith(ctx, api, token, name, key)
}

// registerWith registers a cluster with this token and key.
func registerWith(ctx context.Context, api string, token controlapi.Token, name string, key *ecdsa.PrivateKey) error {
	cfg, err := (controlapi.Trust{Fingerprint: token.Fingerprint}).TLSConfig(api)
	if err != nil {
		return err
	}
	client, err := controlapi.NewClient(controlapi.ClientConfig{URL: api, TLS: func() *tls.Config { return cfg }, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer client.Close()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return err
	}
	_, err = client.Register(ctx, token, controlapi.RegisterRequest{
		Name: name, ClusterUID: "uid-" + name, Clock: time.Now(), AgentVersion: "1.0", RunnerAPIVersion: "v1",
		CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
	})
	return err
}

// process is a `serve` of its own.
type process struct {
	cmd *exec.Cmd
	api string
	out sync.WaitGroup
}

// startServe starts the program that is being tested as another process.
func startServe(t *testing.T, dataDir string, args ...string) *process {
	t.Helper()
	program, err := exec.LookPath("pipeops-controlplane") // testscript.Main put it there
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"serve", "--data-dir", dataDir, "--api-listen", "127.0.0.1:0",
		"--tunnel-listen", "127.0.0.1:0", "--edge-listen", "127.0.0.1:0"}, args...)
	p := &process{cmd: exec.CommandContext(context.Background(), program, args...)}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	for p.api == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("serve ended: %v %s", err, line)
		}
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "API" {
			p.api = fields[1]
		}
	}
	p.out.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	return p
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Kill()
	p.out.Wait()
	_ = p.cmd.Wait()
}

// stop is what systemd and Kubernetes do.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.out.Wait()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("serve ended badly: %v", err)
	}
}

func (p *process) get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.api+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	resp, err := client.Do(r)
	if err != nil {
		w.Code = 0
		return w
	}
	defer func() { _ = resp.Body.Close() }()
	w.Code = resp.StatusCode
	_, _ = io.Copy(w.Body, resp.Body)
	return w
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal("cancelled: " + what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestServe_StopsOnSignal(t *testing.T) {
	p := startServe(t, newData(t).Dir)
	waitFor(t, "serving", func() bool { return p.get(t, "/healthz").Code == http.StatusOK })
	p.stop(t)
}

// TestServe_Killed kills the process hard, again and again, with the broker
// away and back: what was registered is announced, once and in order.
func TestServe_Killed(t *testing.T) {
	b := broker.OwnForTest(t)
	data := newData(t)
	urlFile := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(urlFile, []byte(b.URL(broker.UserControlPlane)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--broker-url-file", urlFile, "--broker-ca", b.CAFile()}

	p := startServe(t, data.Dir, args...)
	waitFor(t, "serving", func() bool { return p.get(t, "/readyz").Code == http.StatusOK })
	admin, err := operators.Open(t.Context(), data, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.Runners.Create(t.Context(), "test", time.Hour, false)
	if err := errors.Join(err, admin.Close()); err != nil {
		t.Fatal(err)
	}
	heard := hear(t, b)
	names := []string{"one", "two", "three", "four"}
	for i, name := range names {
		if i == 1 {
			if err := b.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "serving", func() bool { return p.get(t, "/readyz").Code == http.StatusOK })
		if err := register(t.Context(), data, p.api, name); err != nil {
			t.Fatal(err)
		}
		p.kill(t)
		p = startServe(t, data.Dir, args...)
	}
	defer p.stop(t)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all announcements", func() bool { return len(heard()) == len(names) })
	for i, name := range heard() {
		if name != names[i] {
			t.Fatalf("announced out of order: %v", heard())
		}
	}
}

// hear answers the names of registered agents in the order of their first
// announcement.
func hear(t *testing.T, b broker.Endpoint) func() []string {
	t.Helper()
	consumer, err := announce.NewConsumer(announce.ConsumerConfig{
		Config: rabbitmq.Config{URLs: []string{b.URL(broker.UserRunner)}, TLS: b.TLSConfig(), Log: zerolog.Nop()},
		Queue:  rabbitmq.RunnerQueue("test"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var names []string
	seen := map[string]bool{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = consumer.Run(ctx, func(_ context.Context, e announce.Event) error {
			agent, err := e.Agent()
			mu.Lock()
			defer mu.Unlock()
			if err == nil && e.Type == announce.AgentRegistered && !seen[e.ID] {
				seen[e.ID] = true
				names = append(names, agent.Name)
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		await.Closed(t, done, "the end of the consumer")
	})
	waitFor(t, "the Runner's queue", func() bool { return consumer.Status().Connected })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), names...)
	}
}
