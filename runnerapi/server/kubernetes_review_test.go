package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const reviewRules = `
rules:
  - name: writers
    namespaces: [shop]
    commands: [kubernetes-api]
    kubernetes: {user: writer}
  - name: lookers
    namespaces: ["*"]
    commands: [kubernetes-api]
    kubernetes: {user: looker, readOnly: true, impersonate: {users: [alice]}}
`

const reviews = "/v1/kubernetes/apis/authorization.k8s.io/v1/"

// underRules has a policy of the real kind.
func underRules(t *testing.T, rules string) (*raw, *apiServer) {
	t.Helper()
	agent, api, _, _ := kubernetesToStart(t)
	p := policyOf(t, rules)
	agent.Policy = p
	agent.Start()
	return newRaw(t, agent), api
}

// TestKubernetesAPI_RefusesExternalIPs sends a Service in every form in which the API server takes
// one.
func TestKubernetesAPI_RefusesExternalIPs(t *testing.T) {
	r, api := underRules(t, reviewRules)
	const path = "/v1/kubernetes/api/v1/namespaces/shop/services"
	const with, without = `{"spec":{"externalIPs":["192.0.2.1"]}}`, `{"spec":{"externalIPs":[],"type":"ClusterIP"}}`
	binary := func(ips ...string) string {
		raw, err := (&corev1.Service{Spec: corev1.ServiceSpec{ExternalIPs: ips}}).Marshal()
		require.NoError(t, err)
		envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Service"}, Raw: raw}).Marshal()
		require.NoError(t, err)
		return "k8s\x00" + string(envelope)
	}
	for _, c := range []struct {
		method, path, media, body string
		want                      int
	}{
		{http.MethodPost, path, "application/json", with, http.StatusForbidden},
		{http.MethodPost, path, "", with, http.StatusForbidden},
		{http.MethodPost, path, "application/json", `{"spec":{"external\u0049Ps":["192.0.2.1"]}}`, http.StatusForbidden},
		{http.MethodPost, path, "application/json", `{"spec":{"externalIPs":["192.0.2.1"]},"spec":{}}`, http.StatusBadRequest},
		{http.MethodPost, path, "application/yaml", "spec: {externalIPs: [192.0.2.1]}", http.StatusForbidden},
		{http.MethodPost, path, "application/vnd.kubernetes.protobuf", binary("192.0.2.1"), http.StatusForbidden},
		{http.MethodPost, path, "application/cbor", with, http.StatusBadRequest},
		{http.MethodPost, path + "?dryRun=All", "application/json", with, http.StatusForbidden},
		{http.MethodPut, path + "/web", "application/json", with, http.StatusForbidden},
		{http.MethodPatch, path + "/web", "application/apply-patch+yaml", "spec: {externalIPs: [192.0.2.1]}", http.StatusForbidden},
		{http.MethodPatch, path + "/web", "application/merge-patch+json", with, http.StatusForbidden},
		{http.MethodPatch, path + "/web/status", "application/strategic-merge-patch+json", with, http.StatusForbidden},
		{http.MethodPatch, path + "/web", "application/json-patch+json", `[{"op":"add","path":"/spec/externalIPs/-","value":"192.0.2.1"}]`, http.StatusForbidden},
		{http.MethodPatch, path + "/web", "application/json-patch+json", `[{"op":"replace","path":"/spec","value":{"externalIPs":["192.0.2.1"]}}]`, http.StatusForbidden},
		{http.MethodPatch, path + "/web", "application/json-patch+json", `[{"op":"copy","from":"/spec/loadBalancerSourceRanges","path":"/spec/externalIPs"}]`, http.StatusForbidden},
		{http.MethodPatch, path + "/web", "application/json-patch+json", `[{"op":"remove","path":"/spec/externalIPs"}]`, http.StatusOK},
		{http.MethodPost, path, "application/json", without, http.StatusOK},
		{http.MethodPost, path, "application/vnd.kubernetes.protobuf", binary(), http.StatusOK},
		{http.MethodPost, "/v1/kubernetes/api/v1/namespaces/shop/configmaps", "application/json", with, http.StatusOK},
	} {
		before := api.count()
		resp, answer := r.do(c.method, c.path, c.body, "Content-Type", c.media)
		assert.Equal(t, c.want, resp.StatusCode, "%v: %s", c, answer)
		assert.Equal(t, c.want == http.StatusOK, api.count() > before, "%v", c)
	}
}

// A review names the user that a request would be made as, or denies where the policy would.
func TestAccessReview_FollowsPolicy(t *testing.T) {
	r, api := underRules(t, reviewRules)
	attributes := func(namespace, verb, resource string) string {
		return fmt.Sprintf(`{"spec":{"resourceAttributes":{"namespace":%q,"verb":%q,"resource":%q,"name":"alice"}}}`, namespace, verb, resource)
	}
	path := func(verb, path string) string {
		return fmt.Sprintf(`{"spec":{"nonResourceAttributes":{"verb":%q,"path":%q}}}`, verb, path)
	}
	for body, user := range map[string]string{
		attributes("shop", "create", "pods"):       "writer",
		attributes("shop", "get", "pods/exec"):     "writer",
		attributes("web", "list", "pods"):          "looker",
		attributes("", "list", "pods"):             "looker",
		attributes("web", "get", "pods/log"):       "looker",
		path("get", "/version"):                    "writer", // as discovery itself
		path("get", "/metrics"):                    "looker",
		attributes("web", "create", "pods"):        "",
		attributes("web", "*", "*"):                "",
		attributes("web", "get", "pods/exec"):      "",
		attributes("pipeops", "get", "secrets"):    "",
		attributes("", "get", "nodes/proxy"):       "",
		attributes("shop", "impersonate", "users"): "",
	} {
		before := api.count()
		resp, answer := r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", body, "Content-Type", "application/json")
		if user != "" {
			require.Equal(t, before+1, api.count(), "%s: %s", body, answer)
			assert.Equal(t, user, api.last().Header.Get("Impersonate-User"), body)
			assert.Equal(t, body, string(answer), "it comes to the API server as it was")
			continue
		}
		assert.Equal(t, before, api.count(), body)
		assert.Equal(t, http.StatusCreated, resp.StatusCode)
		var review authorizationv1.SelfSubjectAccessReview
		require.NoError(t, json.Unmarshal(answer, &review), string(answer))
		assert.Equal(t, "SelfSubjectAccessReview", review.Kind)
		assert.True(t, review.Status.Denied && !review.Status.Allowed, "%s: %s", body, answer)
		assert.Contains(t, review.Status.Reason, "PipeOps agent: ", body)
	}
	_, answer := r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", attributes("web", "impersonate", "users"), "Content-Type", "application/json")
	assert.Contains(t, string(answer), `"allowed":true`, "what the policy lets be impersonated")
	_, answer = r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", attributes("web", "impersonate", "users"), "Impersonate-User", "alice")
	assert.Contains(t, string(answer), `"allowed":false`, "nobody impersonates twice")
	r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", attributes("web", "list", "pods"), "Impersonate-User", "alice")
	assert.Equal(t, "alice", api.last().Header.Get("Impersonate-User"))
	resp, _ := r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", "{", "Content-Type", "application/json")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	resp, _ = r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", "a", "Content-Type", "application/cbor")
	assert.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode)
}

// Controllers send protobuf.
func TestAccessReview_ReadsProtobuf(t *testing.T) {
	r, api := underRules(t, reviewRules)
	for namespace, user := range map[string]string{"shop": "writer", "web": "looker"} {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "pods"},
		}}
		raw, err := review.Marshal()
		require.NoError(t, err)
		wrapped, err := (&runtime.Unknown{Raw: raw}).Marshal()
		require.NoError(t, err)
		r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", "k8s\x00"+string(wrapped), "Content-Type", "application/vnd.kubernetes.protobuf")
		assert.Equal(t, user, api.last().Header.Get("Impersonate-User"))
	}
}

// kubectl auth can-i --list shows these rules.
func TestRulesReview_ReadOnly(t *testing.T) {
	r, api := underRules(t, reviewRules)
	rules := func(namespace string) string {
		return `{"spec":{"namespace":"` + namespace + `"},"status":{"resourceRules":[
		{"verbs":["*"],"apiGroups":["*"],"resources":["*"]},
		{"verbs":["get","create","delete"],"apiGroups":[""],"resources":["pods","pods/exec"]},
		{"verbs":["create"],"apiGroups":[""],"resources":["pods/exec"]},
		{"verbs":["create"],"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectaccessreviews"]}],
		"nonResourceRules":[{"verbs":["get","post"],"nonResourceURLs":["/healthz"]}]}}`
	}
	api.created.Store(true)
	_, answer := r.do(http.MethodPost, reviews+"selfsubjectrulesreviews", rules("shop"), "Content-Type", "application/json")
	assert.Equal(t, rules("shop"), string(answer))
	_, answer = r.do(http.MethodPost, reviews+"selfsubjectrulesreviews", rules("web"), "Content-Type", "application/json")
	var review authorizationv1.SelfSubjectRulesReview
	require.NoError(t, json.Unmarshal(answer, &review), string(answer))
	assert.Equal(t, authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews"}},
		},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz"}}},
	}, review.Status)
	_, answer = r.do(http.MethodPost, reviews+"selfsubjectrulesreviews", rules("pipeops"), "Content-Type", "application/json")
	review = authorizationv1.SelfSubjectRulesReview{}
	require.NoError(t, json.Unmarshal(answer, &review), string(answer))
	assert.Empty(t, review.Status.ResourceRules)
	assert.Contains(t, review.Status.EvaluationError, "agent's own namespace")
}

// A dry run counts as reading only where the API server keeps its promise.
func TestKubernetesAPI_DryRunReads(t *testing.T) {
	agent, _, p, _ := kubernetes(t)
	p.become(refuseAll)
	r := newRaw(t, agent)
	const pods, asJSON = "/api/v1/namespaces/shop/pods", "application/json"
	for _, c := range []struct {
		method, path, contentType, body string
		dry                             bool
	}{
		{http.MethodPost, pods + "?dryRun=All", asJSON, `{}`, true},
		{http.MethodPatch, pods + "/a?dryRun=All&force=true", "application/apply-patch+yaml", `{}`, true},
		{http.MethodPut, pods + "/a/status?dryRun=All", asJSON, `{}`, true},
		{http.MethodDelete, pods + "/a?dryRun=All", "", ``, true},
		{http.MethodDelete, pods + "/a", asJSON, `{"dryRun":["All"]}`, true},
		{http.MethodDelete, pods, "", `{"dryRun":["All"]}`, true},
		{http.MethodPost, pods, asJSON, `{}`, false},
		{http.MethodPost, pods + "?dryRun=", asJSON, `{}`, false},
		{http.MethodPost, pods + "?dryRun=All&dryRun=", asJSON, `{}`, false},
		{http.MethodDelete, pods + "/a?dryRun=All", asJSON, `{}`, false}, // the body wins
		{http.MethodDelete, pods + "/a", asJSON, `{"DryRun":["All"]}`, false},
		{http.MethodDelete, pods + "/a", "application/yaml", `{"dryRun":["All"]}`, false},
		{http.MethodPost, pods + "/a/exec?dryRun=All", asJSON, ``, false},
		{http.MethodPost, pods + "/a/eviction?dryRun=All", asJSON, `{}`, false},
		{http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts/a/token?dryRun=All", asJSON, `{}`, false},
	} {
		r.do(c.method, "/v1/kubernetes"+c.path, c.body, "Content-Type", c.contentType)
		asked := p.all()
		k := asked[len(asked)-1].Kubernetes
		assert.Equal(t, c.dry, k.DryRun, "%s %s %s", c.method, c.path, c.body)
		assert.Equal(t, c.dry, k.Reads(), "%s %s %s", c.method, c.path, c.body)
	}
	p.become(func(runnerapi.Intent) error { return nil })
	_, answer := r.do(http.MethodDelete, "/v1/kubernetes"+pods+"/a", `{"dryRun":["All"]}`, "Content-Type", asJSON)
	assert.JSONEq(t, `{"dryRun":["All"]}`, string(answer), "the body gets to the API server")
}

// The CLI asks before it starts kubectl.
func TestKubernetesAPI_ClientExplainsRefusal(t *testing.T) {
	agent, api, _, _ := kubernetes(t)
	api.created.Store(true)
	for rules, want := range map[string]map[string]string{
		reviewRules:               {"shop": "", "web": "", "pipeops": "agent's own namespace"},
		"rules: [{name: others}]": {"shop": "no rule of the customer's policy allows Runner tester to do kubernetes-api"},
	} {
		p := policyOf(t, rules)
		agent.Stop()
		agent.Policy = p
		agent.Start()
		client := agent.Client()
		for namespace, says := range want {
			refusal, err := client.Kubernetes().Refusal(t.Context(), namespace)
			require.NoError(t, err)
			if says == "" {
				assert.Empty(t, refusal, namespace)
			}
			assert.Contains(t, refusal, says, namespace)
		}
	}
}
