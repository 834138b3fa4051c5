package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestVisitors_SignIn follows the Secrets of a provider and of tokens. Without both, no one is let
// in.
func TestVisitors_SignIn(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "gated")
	const host = "gated.apps.example.com"
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}})))
	spec := web()
	spec.Ports = []runnerapi.Port{{Port: 8080}}
	visitors := &runnerapi.Visitors{SignIn: &runnerapi.SignIn{Emails: []string{"*@example.com"}, Groups: []string{"shop"}}}
	spec.Ingress = &runnerapi.Ingress{Public: true, Visitors: visitors}
	deploy(t, e, k, spec)
	rollOut(t, env, k)
	closed := func(why string) {
		t.Helper()
		assert.Empty(t, awaitIngress(t, e, k, runnerapi.ReasonHostNotServed, why))
		routes := routesOf(t, e)
		require.Len(t, routes, 1)
		assert.Empty(t, routes[0].Addresses)
		assert.Contains(t, routes[0].Reason, why)
	}
	write := func(name string, data map[string]string) {
		t.Helper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: name}, StringData: data}
		if err := env.Client.Create(t.Context(), secret); err != nil {
			require.NoError(t, env.Client.Delete(t.Context(), secret))
			require.NoError(t, env.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: name}, StringData: data}))
		}
		require.NoError(t, e.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, runnerapi.Key{Namespace: k.Namespace, Name: name}))
	}
	closed("the control plane has no identity provider for visitors: name a Secret")

	visitors.SignIn.Secret, visitors.ServiceTokensSecret = "signin", "tokens"
	deploy(t, e, k, spec)
	closed("there is no Secret tokens, which has the service tokens")
	write("tokens", map[string]string{"bot": "short"})
	closed("the Secret tokens, key bot: the token has 5 characters, and needs 32 to 1024")
	write("tokens", map[string]string{"bot": "bot-0123456789abcdef0123456789abcdef"})
	closed("there is no Secret signin, which has the identity provider")
	write("signin", map[string]string{"issuer": "https://id.example.com"})
	closed("the Secret signin, it has no key client-id; give it issuer, client-id and client-secret")
	write("signin", map[string]string{"issuer": "http://id.example.com", "client-id": "web", "client-secret": "s"})
	closed("key issuer: it is not https://HOST")
	settings := map[string]string{"issuer": "https://id.example.com", "client-id": "web", "client-secret": "a-secret"}
	write("signin", settings)
	awaitIngress(t, e, k, runnerapi.ReasonServed, "")
	first := routesOf(t, e)[0]
	require.NotNil(t, first.Visitors.SignIn)
	assert.Equal(t, []string{"*@example.com"}, first.Visitors.SignIn.Emails)
	assert.Equal(t, k.String(), first.Visitors.SignIn.App)
	assert.True(t, first.Visitors.SignIn.Equal(routesOf(t, e)[0].Visitors.SignIn), "visitors stay signed in")

	settings["note"] = "not of the provider"
	write("signin", settings)
	assert.True(t, first.Visitors.SignIn.Equal(routesOf(t, e)[0].Visitors.SignIn))
	settings["client-secret"] = "another"
	write("signin", settings)
	now := routesOf(t, e)[0].Visitors.SignIn
	assert.False(t, first.Visitors.SignIn.Equal(now))
	assert.Equal(t, first.Visitors.SignIn.ProviderID, now.ProviderID, "sessions outlive another secret of the client")
	settings["ca.crt"] = "none"
	write("signin", settings)
	closed("key ca.crt: it has no CA certificate in PEM")
}
