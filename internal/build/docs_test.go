package build_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	announceserver "github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// pages runs what docs/deployer/git.md and builds.md have run where there is a builder: with the
// Runner's program, before the Runner API of this agent.
func (f *follower) pages(t *testing.T) {
	f.git.Commit(map[string]string{"deploy/app.yaml": appSpec, "Dockerfile": `FROM scratch
COPY app/bin/busybox /bin/sh
USER 1000
CMD ["/bin/sh", "-c", "sleep 3600"]
`})
	login := map[string]string{"url": f.gitURL, "username": user, "password": password, "ca.crt": f.ca.pem}
	for _, namespace := range []string{shop, builds} {
		f.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git-deploy"}, StringData: login})
	}
	here := strings.NewReplacer(
		"https://git.example.com/shop/web.git", f.gitURL, "registry.example.com", f.registry,
		"--push-credentials registry", "--push-credentials registry --ca-config-map ca",
		"source set shop web", "source set shop web -n "+shop, "source logs shop web", "source logs shop web -n "+shop,
	)
	env := f.runner(t)
	for page, says := range map[string]string{"git.md": "pushed " + f.registry, "builds.md": "deleted: build " + builds + "/web"} {
		blocks, err := harness.Named("docs/deployer/"+page, "sh")
		require.NoError(t, err)
		require.NotEmpty(t, blocks["builder"], page)
		out := run(t, env, here.Replace(blocks["builder"]))
		assert.Contains(t, out, says, page)
		assert.NotContains(t, out, password, page)
	}
	a, err := f.engine.Get(t.Context(), f.key)
	require.NoError(t, err)
	assert.Contains(t, a.Spec.Image, f.registry+"/shop/web@sha256:")
	require.NoError(t, f.keeper.Delete(t.Context(), f.key, byTest))
	require.NoError(t, f.engine.Delete(t.Context(), f.key, byTest))
}

func run(t *testing.T, env []string, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", text, out)
	t.Log(string(out))
	return string(out)
}

// runner compiles the Runner's program and has it reach this agent: the Runner API over mutual
// TLS, and a control plane that knows nothing else.
func (f *follower) runner(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	program, err := programs.Runner.Build(t.Context())
	require.NoError(t, err)
	ca := runnertest.NewCA(t)
	address := f.serve(t, ca)
	key, cert := pair(t, ca.Issue(t, credentials.RunnerURI(runnertest.TrustDomain, runnertest.RunnerName)))
	credentials := credentials.Credentials{
		Runner: runnertest.RunnerName, ControlPlane: list(t, ca, address), Edge: address, TrustDomain: runnertest.TrustDomain,
		AgentsDomain: strings.TrimPrefix(runnertest.ServerName, runnertest.AgentID+"."),
		CA:           block("CERTIFICATE", ca.Cert.Raw), Certificate: cert, Key: key,
	}
	file := filepath.Join(dir, "runner.json")
	require.NoError(t, credentials.Write(file))
	return append(os.Environ(), "PIPEOPS_RUNNER_CREDENTIALS="+file, "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
}

// serve serves what this agent has of the Runner API.
func (f *follower) serve(t *testing.T, ca *runnertest.CA) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cert := ca.Issue(t, credentials.AgentURI(runnertest.TrustDomain, runnertest.AgentID), runnertest.ServerName)
	handler := server.New(runnertest.AllowAll{}, server.Config{
		Apps: f.engine, Builds: f.builds, Sources: f.keeper, TrustDomain: runnertest.TrustDomain, Version: "v0.0.0", Log: zerolog.Nop(),
	})
	await.Background(t, "the server", func(ctx context.Context) error {
		return transport.Serve(ctx, ln, transport.ServeConfig{
			Handler: handler, Drain: time.Second, Log: zerolog.Nop(),
			TLS: transport.TLS(transport.TLSConfig{
				Certificate: func() (*tls.Certificate, error) { return &cert, nil },
				Roots:       func() *x509.CertPool { return ca.Pool }, TrustDomain: runnertest.TrustDomain,
			}),
		})
	})
	return ln.Addr().String()
}

// list is a control plane as far as it finds the agent.
func list(t *testing.T, ca *runnertest.CA, address string) string {
	t.Helper()
	agent := announce.Agent{
		ID: runnertest.AgentID, Name: "shop", State: announce.StateOnline,
		Endpoints: []announce.Endpoint{{Address: address, ServerName: runnertest.ServerName}},
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+announce.AgentPath, announceserver.AgentHandler(
		func(context.Context, string, string) (announce.Agent, error) { return agent, nil },
		func(r *http.Request) (string, error) {
			return credentials.CallerFromTLS(r.TLS, runnertest.TrustDomain)
		},
	))
	srv := httptest.NewUnstartedServer(mux)
	cert := ca.Issue(t, &url.URL{Scheme: "spiffe", Host: runnertest.TrustDomain, Path: "/control-plane"}, "localhost")
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	return "https://localhost:" + port
}

func pair(t *testing.T, cert tls.Certificate) (key, certificate string) {
	t.Helper()
	private, ok := cert.PrivateKey.(*ecdsa.PrivateKey)
	require.True(t, ok)
	der, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	for _, raw := range cert.Certificate {
		certificate += block("CERTIFICATE", raw)
	}
	return block("EC PRIVATE KEY", der), certificate
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
