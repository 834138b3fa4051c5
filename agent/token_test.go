package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// tokenSecret is the Secret that the manifest's head has users make.
const tokenSecret = "pipeops-agent"

var tokenKey = client.ObjectKey{Namespace: kubetest.AgentNamespace, Name: tokenSecret}

// keepToken puts a token into the agent's Secret as kubectl does, with the line's end, and
// another key beside it.
func keepToken(t *testing.T, env *kubetest.Env, token string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tokenKey.Namespace, Name: tokenKey.Name}}
	remove := func() { _ = env.Client.Delete(t.Context(), s.DeepCopy()) }
	remove()
	s.Data = map[string][]byte{"AGENT_TOKEN": []byte(token + "\n"), "OTHER": []byte("stays")}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"AGENT_TOKEN":"` + token + `"}}`} // as kubectl apply does
	require.NoError(t, env.Client.Create(t.Context(), s))
	t.Cleanup(func() { _ = env.Client.Delete(context.Background(), s) })
}

// keptToken is the Secret's keys and values.
func keptToken(t *testing.T, env *kubetest.Env) map[string]string {
	t.Helper()
	s := &corev1.Secret{}
	require.NoError(t, env.Client.Get(t.Context(), tokenKey, s))
	all := map[string]string{}
	for key, value := range s.Data {
		all[key] = strings.TrimSpace(string(value))
	}
	if all["AGENT_TOKEN"] == "" {
		assert.Empty(t, s.Annotations, "kubectl's copy of what it applied has the token")
	}
	return all
}

func inSecret(o *agent.Options) { o.Config.TokenSecret = tokenSecret }

// TestToken_RemovedAfterRegistration: the agent starts without it, and keeps one that it was not
// given, which is for another registration.
func TestToken_RemovedAfterRegistration(t *testing.T) {
	env, p, dir := kubetest.ControlPlane(t), planetest.Start(t), t.TempDir()
	given := token(t, p)
	keepToken(t, env, given)
	first, log, _ := observed(t, p, dir, given, inSecret)
	id := p.AwaitOnline(t, time.Time{})
	await.Until(t, "the token is removed", func() bool { return keptToken(t, env)["AGENT_TOKEN"] == "" })
	assert.Equal(t, map[string]string{"OTHER": "stays"}, keptToken(t, env))
	await.Until(t, "the log says so", func() bool { return strings.Contains(log.String(), "enrolment token removed") })
	assert.NotContains(t, log.String(), given)
	first.stop()

	keepToken(t, env, "pipeops_another_one")
	restarted := p.Clock.Now()
	second, _, _ := observed(t, p, dir, "", inSecret)
	assert.Equal(t, id, p.AwaitOnline(t, restarted), "it starts without a token")
	second.stop()
	restarted = p.Clock.Now()
	observed(t, p, dir, given, inSecret)
	p.AwaitOnline(t, restarted)
	assert.Equal(t, "pipeops_another_one", keptToken(t, env)["AGENT_TOKEN"])
}

// TestToken_RemainingIsReported once in the log, in /readyz and by doctor, until the agent may
// remove it.
func TestToken_RemainingIsReported(t *testing.T) {
	env, p, dir := kubetest.ControlPlane(t), planetest.Start(t), t.TempDir()
	given := token(t, p)
	keepToken(t, env, given)
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: kubetest.AgentNamespace, Name: "pipeops-agent-token"}, binding))
	require.NoError(t, env.Client.Delete(t.Context(), binding.DeepCopy()))
	restore := func() {
		binding.ResourceVersion, binding.UID = "", ""
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(context.Background(), binding.DeepCopy())))
	}
	t.Cleanup(restore)
	await.Until(t, "the right is gone", func() bool { return !mayPatchToken(t, env) })

	r, log, ready := observed(t, p, dir, given, inSecret)
	p.AwaitOnline(t, time.Time{})
	await.Until(t, "/readyz says it, of an agent that is ready", func() bool {
		said := ready()
		return strings.Contains(said, "the enrolment token is still in secret pipeops/pipeops-agent") && strings.Contains(said, `"status":"ready"`)
	})
	assert.Equal(t, 1, strings.Count(log.String(), "the enrolment token stays in secret pipeops/pipeops-agent"))
	assert.Contains(t, log.String(), "kubectl -n pipeops patch secret pipeops-agent")
	examine := func(c config.Config) doctor.Finding {
		for _, f := range doctor.Examine(t.Context(), doctor.Options{Version: "test", Config: c, Kubernetes: env.Agent}).Findings {
			if f.Check == "token" {
				return f
			}
		}
		return doctor.Finding{}
	}
	c := config.Config{ControlPlaneURL: p.URL(), ClusterName: name, Namespace: kubetest.AgentNamespace, StateDir: dir, TokenSecret: tokenSecret}
	assert.Equal(t, doctor.Warning, examine(c).Status)
	assert.Contains(t, examine(c).Detail, "may not look")

	restore()
	await.Until(t, "the right is back", func() bool { return mayPatchToken(t, env) })
	assert.Contains(t, examine(c).Detail, "is still in secret pipeops/pipeops-agent")
	r.stop()
	restarted := p.Clock.Now()
	observed(t, p, dir, given, inSecret)
	p.AwaitOnline(t, restarted)
	await.Until(t, "the token is removed", func() bool { return keptToken(t, env)["AGENT_TOKEN"] == "" })
	assert.Equal(t, doctor.OK, examine(c).Status)

	c.TokenSecret, c.Token = "", given
	assert.Contains(t, examine(c).Detail, "is still in AGENT_TOKEN", "of an agent that is a process")
	c.TokenFile = "/etc/pipeops/token"
	assert.Contains(t, examine(c).Fix, "truncate -s 0 /etc/pipeops/token")
}

// mayPatchToken asks as the agent, with a patch that changes nothing.
func mayPatchToken(t *testing.T, env *kubetest.Env) bool {
	t.Helper()
	c, err := client.New(env.Agent, client.Options{})
	require.NoError(t, err)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tokenKey.Namespace, Name: tokenKey.Name}}
	return c.Patch(t.Context(), s, client.RawPatch("application/merge-patch+json", []byte("{}"))) == nil
}

// TestToken_MissingNamesFix for the way in which the agent is given its token.
func TestToken_MissingNamesFix(t *testing.T) {
	p := planetest.Start(t)
	err := run(t, p, t.TempDir(), "", func(c *config.Config) { c.TokenSecret = tokenSecret }).end(t)
	require.ErrorContains(t, err, "pipeops-controlplane token create")
	require.ErrorContains(t, err, "put it into Secret pipeops-agent")
	require.ErrorContains(t, err, "rollout restart")
	require.ErrorContains(t, run(t, p, t.TempDir(), "").end(t), "AGENT_TOKEN_FILE")
}
