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
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// register registers a cluster as an agent would, with its own token.
func register(ctx context.Context, data datadir.Data, api, name string) error {
	admin, err := administration.Open(ctx, data, nil)
	if err != nil {
		return err
	}
	token, _, err := admin.Tokens.Create(ctx, administration.TokenOptions{Name: "for " + name, Uses: 1, TTL: time.Hour})
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
	require.NoError(t, err)
	args = append([]string{"serve", "--data-dir", dataDir, "--api-listen", "127.0.0.1:0",
		"--tunnel-listen", "127.0.0.1:0", "--edge-listen", "127.0.0.1:0"}, args...)
	p := &process{cmd: exec.CommandContext(context.Background(), program, args...)}
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	lines := bufio.NewReader(stderr)
	for p.api == "" {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, "serve ended: %s", line)
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
	assert.NoError(t, p.cmd.Wait())
}

// get returns status 0 while nothing responds.
func (p *process) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.api+path, nil)
	require.NoError(t, err)
	resp, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// awaitReady waits until the process is ready and its checks have a text.
func (p *process) awaitReady(t *testing.T, text string) {
	t.Helper()
	await.Until(t, "readiness: "+text, func() bool {
		status, body := p.get(t, "/readyz")
		return status == http.StatusOK && strings.Contains(body, text)
	})
}
