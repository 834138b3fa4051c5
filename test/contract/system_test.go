package contract_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

func TestMain(m *testing.M) {
	render.Child() // of releases
	os.Exit(kubetest.Main(m, kubetest.OwnClusters))
}

// system is a control plane and an agent in this process, over the API server of a real cluster.
type system struct {
	env         *kubetest.Env
	agentID     string
	credentials credentials.Credentials
}

func start(t *testing.T) *system {
	t.Helper()
	env, plane := kubetest.ControlPlane(t), planetest.Start(t)
	sources, err := deployments.Sources()
	require.NoError(t, err)
	s := &system{env: env}
	for _, manifest := range []string{string(deployments.NodeRights()), string(deployments.KubernetesAPIRights()), string(sources), managedNamespace} {
		_, err := env.Cluster.KubectlWith(t.Context(), manifest, "apply", "-f", "-")
		require.NoError(t, err)
	}
	a, err := agent.New(agent.Options{
		Config: config.Config{
			ControlPlaneURL: plane.URL(), Token: plane.Token(t, administration.TokenOptions{TTL: time.Hour}), ClusterName: "shop",
			Namespace: kubetest.AgentNamespace, StateDir: t.TempDir(), HealthAddress: "127.0.0.1:0",
		},
		Version: "test", Log: zerolog.Nop(), Kubernetes: env.Agent, Now: plane.Clock.Now,
	})
	require.NoError(t, err)
	await.Background(t, "the agent", a.Run)
	s.agentID = plane.AwaitOnline(t, time.Time{})
	s.credentials, err = plane.Runners.Create(t.Context(), "contract", time.Hour, false)
	require.NoError(t, err)
	return s
}

const managedNamespace = `
apiVersion: v1
kind: Namespace
metadata: {name: production, labels: {app.kubernetes.io/managed-by: pipeops, pipeops.io/builds: allowed}}
`

// allowAll is a policy that names the calls which the default refuses.
func (s *system) allowAll(t *testing.T) {
	t.Helper()
	policy := `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: ` + kubetest.AgentNamespace + `, name: pipeops-policy}
data:
  policy.yaml: |
    rules: [{name: all, commands: ["*", exec-app, port-forward-app, cordon-node, uncordon-node, drain-node, apply-manifests, delete-set, get-join-token, kubernetes-api,
        put-release, rollback-release, delete-release, put-build, put-source], kinds: ["*"], hosts: ["*"], annotations: ["*"], kubernetes: {user: pipeops-runner, groups: [pipeops-runners]}}]
`
	s.env.Apply(t, policy)
	client := s.client(t, true)
	await.Until(t, "the policy holds", func() bool {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url("/v1/cluster/join/token"), nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode != http.StatusForbidden
	})
}

func (s *system) serverName() string { return s.agentID + "." + s.credentials.AgentsDomain }

func (s *system) url(path string) string { return "https://" + s.serverName() + path }

// client calls the agent through the edge and the tunnel, and the control plane.
func (s *system) client(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	cert, err := s.credentials.TLSCertificate()
	require.NoError(t, err)
	roots, err := s.credentials.Roots()
	require.NoError(t, err)
	transport := &http.Transport{
		ForceAttemptHTTP2: http2, MaxIdleConnsPerHost: workers,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasPrefix(address, s.serverName()+":") {
				address = s.credentials.Edge
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
