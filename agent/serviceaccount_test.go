package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// accounts makes service-account tokens in a real Kubernetes, as the kubelet does for a pod.
type accounts struct {
	t      *testing.T
	client *kubernetes.Clientset
	pod    *corev1.Pod
}

func newAccounts(t *testing.T) accounts {
	t.Helper()
	client, err := kubernetes.NewForConfig(kubetest.ControlPlane(t).Admin)
	require.NoError(t, err)
	no, yes := false, true
	pod, err := client.CoreV1().Pods(kubetest.AgentNamespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pipeops-agent-"},
		Spec: corev1.PodSpec{ServiceAccountName: "pipeops-agent", NodeName: "node-1", Containers: []corev1.Container{{
			Name: "agent", Image: "pipeops/agent:dev",
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, RunAsNonRoot: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return accounts{t, client, pod}
}

// raw returns what `kubectl get --raw` prints.
func (a accounts) raw(path string) string {
	a.t.Helper()
	text, err := a.client.RESTClient().Get().AbsPath(path).DoRaw(a.t.Context())
	require.NoError(a.t, err)
	return string(text)
}

// trust creates a token without a secret for the cluster.
func (a accounts) trust(p *planetest.Plane, opts administration.TokenOptions) string {
	a.t.Helper()
	var found struct {
		Issuer string `json:"issuer"`
	}
	require.NoError(a.t, json.Unmarshal([]byte(a.raw("/.well-known/openid-configuration")), &found))
	opts.Kubernetes = &store.Kubernetes{Issuer: found.Issuer, Keys: a.raw("/openid/v1/jwks")}
	return p.Token(a.t, opts)
}

// token returns a token of a service account for an audience, bound to the agent's pod.
func (a accounts) token(account, audience string) string {
	a.t.Helper()
	seconds := int64(600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &seconds}}
	if account == a.pod.Spec.ServiceAccountName {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: a.pod.Name, UID: a.pod.UID}
	}
	made, err := a.client.CoreV1().ServiceAccounts(kubetest.AgentNamespace).CreateToken(a.t.Context(), account, request, metav1.CreateOptions{})
	require.NoError(a.t, err)
	return made.Status.Token
}

// TestServiceAccount_JoinsWithoutSecret registers an agent by tokens of a real Kubernetes, and
// again after it has lost its identity. The token stays in its Secret.
func TestServiceAccount_JoinsWithoutSecret(t *testing.T) {
	env, p := kubetest.ControlPlane(t), planetest.Start(t)
	a := newAccounts(t)
	public := a.trust(p, administration.TokenOptions{Uses: 2, TTL: time.Hour})
	keepToken(t, env, public)
	file := filepath.Join(t.TempDir(), "token")
	mount := func(text string) { t.Helper(); require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	joining := func(o *agent.Options) {
		inSecret(o)
		o.Config.ServiceAccountTokenFile = file
	}
	mount(a.token("pipeops-agent", "https://kubernetes.default.svc"))
	dir := t.TempDir()
	first, log, ready := observed(t, p, dir, public, joining)
	await.Until(t, "it says what it waits for", func() bool { return strings.Contains(ready(), "expected audience") })
	await.Until(t, "the log says so", func() bool { return log.Count("service_account_refused", "expected audience") == 1 })
	first.stop()

	mount(a.token("pipeops-agent", p.URL()))
	second, log, _ := observed(t, p, dir, public, joining)
	id := p.AwaitOnline(t, time.Time{})
	second.stop()
	assert.NotContains(t, log.String(), "eyJ", "no token is in the log")
	assert.Equal(t, public, keptToken(t, env)["AGENT_TOKEN"], "it is no secret")
	for _, f := range doctor.Examine(t.Context(), doctor.Options{Version: "test", Kubernetes: env.Agent, Config: config.Config{
		ControlPlaneURL: p.URL(), ClusterName: name, Namespace: kubetest.AgentNamespace, StateDir: dir, Token: public,
	}}).Findings {
		if f.Check == "token" {
			assert.Equal(t, doctor.OK, f.Status, f.Detail)
		}
	}

	restarted := p.Clock.Now()
	third, _, _ := observed(t, p, dir, public)
	assert.Equal(t, id, p.AwaitOnline(t, restarted), "its certificate is enough")
	third.stop()

	lost := t.TempDir()
	fourth, _, ready := observed(t, p, lost, public, joining)
	await.Until(t, "the token is good for the first key alone", func() bool { return strings.Contains(ready(), "by the holder of another key") })
	fourth.stop()
	mount(a.token("pipeops-agent", p.URL()))
	restarted = p.Clock.Now()
	observed(t, p, lost, public, joining)
	assert.Equal(t, id, p.AwaitOnline(t, restarted), "the cluster keeps its agent")
	tokens, err := p.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, tokens[0].Uses)
}

// TestServiceAccount_RefusesOthers: another account of the cluster, a token without a pod, and no
// file at all.
func TestServiceAccount_RefusesOthers(t *testing.T) {
	p := planetest.Start(t)
	a := newAccounts(t)
	public := a.trust(p, administration.TokenOptions{})
	file := filepath.Join(t.TempDir(), "token")
	with := func(c *config.Config) { c.ServiceAccountTokenFile = file }
	other, err := a.client.CoreV1().ServiceAccounts(kubetest.AgentNamespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(a.token(other.Name, p.URL())), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, _, ready := observed(t, p, t.TempDir(), public, func(o *agent.Options) { with(&o.Config) })
	await.Until(t, "it is not the agent's account", func() bool {
		return strings.Contains(ready(), `its subject (sub) is \"system:serviceaccount:pipeops:other-`)
	})
	for says, change := range map[string]func(*config.Config){
		"PIPEOPS_SERVICE_ACCOUNT_TOKEN_FILE: is not set": func(*config.Config) {},
		"PIPEOPS_SERVICE_ACCOUNT_TOKEN_FILE: open":       func(c *config.Config) { c.ServiceAccountTokenFile = file + "-none" },
		"has no service-account token":                   func(c *config.Config) { c.ServiceAccountTokenFile = empty },
	} {
		require.ErrorContains(t, run(t, p, t.TempDir(), public, change).end(t), says)
	}
}
