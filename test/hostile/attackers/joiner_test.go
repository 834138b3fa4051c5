package attackers

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// joiner has tokens of the real cluster for a token without a secret, and another cluster's keys.
type joiner struct {
	t     *testing.T
	token controlapi.Token
	pod   *corev1.Pod
}

func newJoiner(t *testing.T) joiner {
	t.Helper()
	get := sys.Kube.Clientset.RESTClient().Get
	keys, err := get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	require.NoError(t, err)
	text, err := get().AbsPath("/.well-known/openid-configuration").DoRaw(t.Context())
	require.NoError(t, err)
	var found struct{ Issuer string }
	require.NoError(t, json.Unmarshal(text, &found))
	file := filepath.Join(t.TempDir(), "jwks.json")
	require.NoError(t, os.WriteFile(file, keys, 0o600))
	public, err := sys.CreateToken(t.Context(), "--kubernetes-jwks", file, "--kubernetes-issuer", found.Issuer, "--uses", "0")
	require.NoError(t, err)
	token, err := controlapi.ParseToken(public)
	require.NoError(t, err)
	pod, err := sys.AgentPod(t.Context())
	require.NoError(t, err)
	return joiner{t, token, pod}
}

// proof returns a token of a service account of the agent's namespace.
func (j joiner) proof(account, audience string, bound bool) string {
	j.t.Helper()
	seconds := int64(600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &seconds}}
	if bound {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: j.pod.Name, UID: j.pod.UID}
	}
	made, err := sys.Kube.Clientset.CoreV1().ServiceAccounts(agentSpace).CreateToken(j.t.Context(), account, request, metav1.CreateOptions{})
	require.NoError(j.t, err)
	return made.Status.Token
}

// registration is a sound one, with a new key.
func (j joiner) registration() string {
	j.t.Helper()
	key, err := identity.NewKey()
	require.NoError(j.t, err)
	csr, err := identity.CSR(key)
	require.NoError(j.t, err)
	text, err := json.Marshal(controlapi.RegisterRequest{Name: "joiner", ClusterUID: "joiner", CSR: csr, AgentVersion: "1", RunnerAPIVersion: "v1", Clock: time.Now()})
	require.NoError(j.t, err)
	return string(text)
}

// changed returns a token with other claims, and the former signature.
func (j joiner) changed(proof string, change map[string]any) string {
	j.t.Helper()
	parts := strings.Split(proof, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(j.t, err)
	claims := map[string]any{}
	require.NoError(j.t, json.Unmarshal(text, &claims))
	for name, value := range change {
		claims[name] = value
	}
	text, err = json.Marshal(claims)
	require.NoError(j.t, err)
	parts[1] = base64.RawURLEncoding.EncodeToString(text)
	return strings.Join(parts, ".")
}

// resigned returns a token with the same claims, signed with another key.
func (j joiner) resigned(proof string, algorithm jose.SignatureAlgorithm, key any) string {
	j.t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(proof, ".")[1])
	require.NoError(j.t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	require.NoError(j.t, err)
	made, err := signer.Sign(text)
	require.NoError(j.t, err)
	compact, err := made.CompactSerialize()
	require.NoError(j.t, err)
	return compact
}

// attempts are those of who wants an agent's identity without being the agent's pod. The first
// token is used by an honest agent.
func (j joiner) attempts(c *caller) []attempt {
	j.t.Helper()
	register := func(name, tries, credential string, want ...string) attempt {
		return attempt{name: name, tries: tries, want: want, do: send(http.MethodPost, "/v1/agents/register", j.registration(), "Authorization", "Bearer "+credential)}
	}
	refused := func(name, tries, proof string) attempt {
		return register(name, tries, j.token.With(proof).Credential(), "401 service_account_refused")
	}
	used := j.proof("pipeops-agent", sys.APIURL(), true)
	got := register("", "", j.token.With(used).Credential()).do(j.t.Context(), c)
	require.Equal(j.t, http.StatusOK, got.status, "%v", got)
	sound := j.proof("pipeops-agent", sys.APIURL(), true)
	parts := strings.Split(sound, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
	unknown, err := controlapi.NewPublicToken("")
	require.NoError(j.t, err)
	return []attempt{
		refused("a service-account token again", "enrol by what another agent has used", used),
		refused("another key's signature", "pass for the cluster", j.resigned(sound, jose.ES256, selfsigned.Key(j.t))),
		refused("the public keys as a secret", "confuse the algorithms", j.resigned(sound, jose.HS256, []byte(strings.Repeat("k", 64)))),
		refused("no signature", "pass for the cluster", none),
		refused("another account's claims", "pass for the agent's account", j.changed(j.proof("default", sys.APIURL(), false), map[string]any{"sub": "system:serviceaccount:pipeops:pipeops-agent"})),
		refused("a longer life", "use an expired token", j.changed(sound, map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})),
		refused("an earlier end", "have the signature checked last", j.changed(sound, map[string]any{"exp": 1})),
		refused("another account", "enrol from any pod of the namespace", j.proof("default", sys.APIURL(), false)),
		refused("a token without a pod", "enrol by what a person has made", j.proof("pipeops-agent", sys.APIURL(), false)),
		refused("the API server's audience", "enrol by the token that each pod has", j.proof("pipeops-agent", "https://kubernetes.default.svc", true)),
		refused("another service's audience", "enrol by what another service was sent", j.proof("pipeops-agent", "https://vault.example.com", true)),
		refused("dots", "crash the reader of tokens", ".."),
		refused("a thousand parts", "crash the reader of tokens", strings.Repeat("e30.", 1000)),
		register("a token that is not there", "find tokens", unknown.With(sound).Credential(), "401 token_unknown"),
		register("a token of 9 KiB", "fill memory", j.token.With(strings.Repeat("e", 9<<10)).Credential(), "401 token_unknown"),
		register("no service-account token", "enrol by what anyone may read", j.token.Reveal(), "401 token_unknown"),
		register("an empty one", "enrol by what anyone may read", j.token.With("").Credential(), "401 service_account_refused"),
	}
}
