package attackers

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kubernetes is a request to the Kubernetes API through the agent.
type kubernetes struct {
	name, tries  string
	method, path string
	body         string
	header       []string
	want         []string // where the policy names the API, and RBAC gives edit in production
	within       func(answer) error
}

// kubernetesClosed are the requests under the default policy, which has no Kubernetes API.
func kubernetesClosed() (out []attempt) {
	for _, k := range kubernetesRequests() {
		out = append(out, attempt{
			name: "Kubernetes API: " + k.name, tries: k.tries, do: k.send(),
			want: []string{"403 Forbidden", "400 BadRequest"},
		})
	}
	return out
}

func (k kubernetes) send() func(context.Context, *caller) answer {
	header := append([]string(nil), k.header...)
	if k.method == http.MethodPatch && len(header) == 0 {
		header = []string{"Content-Type", "application/merge-patch+json"}
	}
	var body any
	if k.body != "" {
		body = k.body
	}
	return send(k.method, "/v1/kubernetes"+k.path, body, header...)
}

// withKubernetes is the default policy, and the Kubernetes API.
const withKubernetes = `rules:
  - name: kubernetes
    commands: [kubernetes-api]
    kubernetes: {user: pipeops-runner, groups: [pipeops-runners], streams: 10}
  - name: default
`

// TestKubernetesAPI_HostileRunner has a Runner that the owner of the cluster let edit one
// namespace, which enforces the baseline of pod security as docs/contributing/attacks.md has him
// do.
func TestKubernetesAPI_HostileRunner(t *testing.T) {
	setPolicy(t, withKubernetes)
	for _, args := range [][]string{
		{"apply", "-f", "../../../deployments/kubernetes-api-rights.yaml"},
		{"-n", production, "create", "rolebinding", "pipeops-runners", "--clusterrole", "edit", "--group", "pipeops-runners"},
		{"label", "namespace", production, "pod-security.kubernetes.io/enforce=baseline"},
	} {
		_, err := sys.Cluster.Kubectl(t.Context(), args...)
		require.NoError(t, err)
	}
	t.Cleanup(func() { restore(t) })
	c := newCaller(t, evil)
	s := open(t, func() {
		for _, path := range []string{"/api/v1/namespaces/production/pods", "/api/v1/pods", "/openapi/v2", "/apis"} {
			got := c.call(t.Context(), http.MethodGet, "/v1/kubernetes"+path, nil, nil)
			require.Equal(t, http.StatusOK, got.status, "%s: %v", path, got)
		}
	})
	s.except = "Secret " + production + "/" + canaryName // edit reads it: docs/contributing/attacks.md says so
	var attempts []attempt
	for _, k := range kubernetesRequests() {
		attempts = append(attempts, attempt{name: k.name, tries: k.tries, do: k.send(), want: k.want, within: k.within})
	}
	s.try(t, c, attempts)
	s.close()
}

// restore takes back what the owner of the cluster has allowed.
func restore(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"delete", "-f", "../../../deployments/kubernetes-api-rights.yaml"},
		{"-n", production, "delete", "rolebinding", "pipeops-runners"},
		{"label", "namespace", production, "pod-security.kubernetes.io/enforce-"},
	} {
		_, err := sys.Cluster.Kubectl(ctx, args...)
		assert.NoError(t, err)
	}
}

// nodeName is for tables that are made before there is a cluster, when the tests skip.
func nodeName() string {
	if sys == nil || sys.Cluster == nil {
		return "node"
	}
	return sys.Cluster.NodeName()
}

const (
	core = "/api/v1"
	ns   = core + "/namespaces/"
)

// forbidden is Kubernetes' own refusal, the policy's, or that of a path that means two things.
var forbidden = []string{"403 Forbidden"}

var ambiguous = slices.Concat(forbidden, []string{"400 BadRequest"})

func pod(fields string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"evil"},"spec":{` + fields + `}}`
}

func kubernetesRequests() []kubernetes {
	get, post, patch, put, del := http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete
	rbac, own := "/apis/rbac.authorization.k8s.io/v1", "Secret"
	service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"evil"},"spec":{"ports":[{"port":80}],"externalIPs":["192.0.2.1"]}}`
	container := `"containers":[{"name":"c","image":"` + image + `"}]`
	return slices.Concat([]kubernetes{
		{name: "Secrets of another team", tries: "read them", method: get, path: ns + "payroll/secrets", want: forbidden},
		{name: "a Secret of another team", tries: "read it", method: get, path: ns + "payroll/secrets/canary", want: forbidden},
		{name: "the agent's Secrets", tries: "be the agent", method: get, path: ns + "pipeops/secrets", want: forbidden},
		{name: "the agent's ConfigMaps", tries: "read the policy", method: get, path: ns + "pipeops/configmaps", want: forbidden},
		{name: "Secrets of all namespaces", tries: "list them", method: get, path: core + "/secrets", want: forbidden},
		{name: "Secrets by label", tries: "list them by a selector", method: get, path: core + "/secrets?labelSelector=a", want: forbidden},
		{name: "Secrets by field", tries: "list them by a selector", method: get, path: core + "/secrets?fieldSelector=metadata.namespace%3Dpipeops", want: forbidden},
		{name: "a watch of Secrets", tries: "see them change", method: get, path: core + "/secrets?watch=true&timeoutSeconds=1", want: forbidden},
		{name: "an old form of a watch", tries: "see them change", method: get, path: core + "/watch/namespaces/payroll/secrets", want: ambiguous},
		{name: "the agent's pods by field", tries: "see the agent's namespace", method: get, path: core + "/pods?fieldSelector=metadata.namespace%3Dpipeops", want: append([]string{"200"}, forbidden...), within: without("pipeops-agent-")},
		{name: "pods of all namespaces", tries: "see the agent's namespace", method: get, path: core + "/pods", want: append([]string{"200"}, forbidden...), within: without(`"namespace":"pipeops"`)},
		{name: "events of all namespaces", tries: "see the agent's namespace", method: get, path: core + "/events", want: append([]string{"200"}, forbidden...), within: without(`"namespace":"pipeops"`)},
		{name: "a path that climbs", tries: "leave the Kubernetes API", method: get, path: "/../namespaces/payroll/secrets", want: ambiguous},
		{name: "an encoded path that climbs", tries: "mean another namespace", method: get, path: ns + "production/%2e%2e/payroll/secrets", want: ambiguous},
		{name: "an encoded slash", tries: "mean another namespace", method: get, path: ns + "production%2f..%2fpayroll/secrets", want: ambiguous},
		{name: "two slashes", tries: "mean another namespace", method: get, path: core + "//namespaces/payroll/secrets", want: ambiguous},
		{name: "a path with a backslash", tries: "mean another namespace", method: get, path: ns + `production\..\payroll/secrets`, want: ambiguous},
		{name: "impersonate an administrator", tries: "be system:masters", method: get, path: ns + "payroll/secrets", header: []string{"Impersonate-User", "admin", "Impersonate-Group", "system:masters"}, want: forbidden},
		{name: "impersonate the agent", tries: "be the agent", method: get, path: ns + "payroll/secrets", header: []string{"Impersonate-User", "system:serviceaccount:pipeops:pipeops-agent"}, want: forbidden},
		{name: "impersonate by UID", tries: "be somebody else", method: get, path: ns + "payroll/secrets", header: []string{"Impersonate-Uid", "1"}, want: forbidden},
		{name: "impersonate by an extra", tries: "have scopes", method: get, path: ns + "payroll/secrets", header: []string{"Impersonate-Extra-Scopes", "all"}, want: forbidden},
		{name: "front-proxy headers", tries: "be somebody else", method: get, path: ns + "payroll/secrets", header: []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters"}, want: forbidden},
		{name: "its own token", tries: "be somebody else", method: get, path: ns + "payroll/secrets", header: []string{"Authorization", "Bearer abc"}, want: append([]string{"401 Unauthorized"}, forbidden...)},
		{name: "headers as of a connection", tries: "have the agent's identity removed", method: get, path: ns + "payroll/secrets", header: []string{"Connection", "Impersonate-User, Authorization"}, want: append([]string{"0"}, ambiguous...)},
		{name: "exec in the agent", tries: "run a program there", method: post, path: ns + "pipeops/pods/pipeops-agent/exec?command=id", want: forbidden},
		{name: "exec in kube-system by GET", tries: "run a program as if it read", method: get, path: ns + "kube-system/pods/coredns/exec?command=id", header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}, want: append([]string{"0"}, ambiguous...)},
		{name: "attach in kube-system", tries: "read a terminal", method: get, path: ns + "kube-system/pods/coredns/attach", want: forbidden},
		{name: "forward ports of kube-system", tries: "reach etcd", method: get, path: ns + "kube-system/pods/etcd/portforward", want: forbidden},
		{name: "a pod's proxy", tries: "reach the agent's health port", method: get, path: ns + "pipeops/pods/pipeops-agent:8080/proxy/", want: forbidden},
		{name: "a service's proxy", tries: "reach a service elsewhere", method: get, path: ns + "kube-system/services/https:kube-dns:53/proxy/", want: forbidden},
		{name: "a node's proxy", tries: "reach the kubelet", method: get, path: core + "/nodes/" + nodeName() + "/proxy/pods", want: forbidden},
		{name: "a node's logs", tries: "read files of the node", method: get, path: core + "/nodes/" + nodeName() + "/proxy/logs/", want: forbidden},
		{name: "run by the kubelet", tries: "run a program by the node", method: post, path: core + "/nodes/" + nodeName() + "/proxy/run/kube-system/coredns/coredns?cmd=id", want: forbidden},
		{name: "a token of the agent", tries: "be the agent", method: post, path: ns + "pipeops/serviceaccounts/pipeops-agent/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, want: forbidden},
		{name: "a token of kube-system", tries: "be a controller", method: post, path: ns + "kube-system/serviceaccounts/namespace-controller/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, want: forbidden},
		{name: "the policy", tries: "write its own policy", method: post, path: ns + "pipeops/configmaps", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"pipeops-policy"}}`, want: forbidden},
		{name: "loosen pod security", tries: "label the namespace privileged", method: patch, path: ns + "production", body: `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`, want: forbidden},
		{name: "finalize a namespace", tries: "loosen it by a subresource", method: put, path: ns + "production/finalize", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"production"},"spec":{"finalizers":[]}}`, want: forbidden},
		{name: "the status of a namespace", tries: "label it by a subresource", method: patch, path: ns + "production/status", body: `{"metadata":{"labels":{"a":"b"}}}`, want: forbidden},
		{name: "its own namespace", tries: "make one without limits", method: post, path: core + "/namespaces", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"evil"}}`, want: forbidden},
		{name: "all pods of the agent", tries: "delete the agent", method: del, path: ns + "pipeops/pods", want: forbidden},
		{name: "the node", tries: "delete it", method: del, path: core + "/nodes/" + nodeName(), want: forbidden},
	}, privileged(post, container), []kubernetes{
		{name: "an ephemeral container in the agent", tries: "debug the agent", method: patch, path: ns + "pipeops/pods/pipeops-agent/ephemeralcontainers", body: `{}`, want: forbidden},
		{name: "its own role", tries: "give itself Secrets", method: post, path: rbac + "/namespaces/production/roles", body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"evil"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]}`, want: forbidden},
		{name: "a binding to cluster-admin", tries: "be an administrator", method: post, path: rbac + "/clusterrolebindings", body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"evil"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"pipeops-runners"}]}`, want: forbidden},
		{name: "escalate a role", tries: "widen edit", method: patch, path: rbac + "/clusterroles/edit", body: `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, want: forbidden},
		{name: "aggregate a role", tries: "widen view by a label", method: post, path: rbac + "/clusterroles", body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"evil","labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[]}`, want: forbidden},
		{name: "a certificate request", tries: "be a node", method: post, path: "/apis/certificates.k8s.io/v1/certificatesigningrequests", body: `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"evil"},"spec":{"request":"YQ==","signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"]}}`, want: forbidden},
		{name: "a webhook", tries: "see all objects", method: post, path: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", body: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"evil"}}`, want: forbidden},
		{name: "the agent's admission policy", tries: "take its bounds away", method: del, path: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", want: forbidden},
		{name: "a persistent volume", tries: "mount the node", method: post, path: core + "/persistentvolumes", body: `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"evil"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/"}}}`, want: forbidden},
		{name: "a definition", tries: "make a kind", method: post, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"evils.example.com"}}`, want: forbidden},
		{name: "an API service", tries: "answer for the API server", method: post, path: "/apis/apiregistration.k8s.io/v1/apiservices", body: `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.evil.example.com"}}`, want: forbidden},
		{name: "an endpoint slice", tries: "lead a Service to the metadata address", method: post, path: "/apis/discovery.k8s.io/v1/namespaces/production/endpointslices", body: `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"evil"},"addressType":"IPv4","endpoints":[{"addresses":["169.254.169.254"]}]}`, want: append([]string{"422 Invalid"}, forbidden...)},
		{name: "external IPs", tries: "take traffic to an address of others (CVE-2020-8554)", method: post, path: ns + "production/services", body: service, want: forbidden},
		{name: "external IPs by server-side apply", tries: "take them by another form", method: patch, path: ns + "production/services/evil?fieldManager=evil", header: []string{"Content-Type", "application/apply-patch+yaml"}, body: service, want: forbidden},
		{name: "external IPs by a patch", tries: "take them by another form", method: patch, path: ns + "production/services/honest", header: []string{"Content-Type", "application/json-patch+json"}, body: `[{"op":"add","path":"/spec/externalIPs","value":["192.0.2.1"]}]`, want: forbidden},
		{name: "a lease of the scheduler", tries: "stop the scheduler", method: patch, path: "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", body: `{"spec":{"holderIdentity":"evil"}}`, want: forbidden},
		{name: "a priority class", tries: "push out others' pods", method: post, path: "/apis/scheduling.k8s.io/v1/priorityclasses", body: `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"evil"},"value":1000}`, want: forbidden},
		{name: "scale the agent", tries: "stop it by a subresource", method: patch, path: "/apis/apps/v1/namespaces/pipeops/deployments/pipeops-agent/scale", body: `{"spec":{"replicas":0}}`, want: forbidden},
		{name: "the status of the agent", tries: "lie about it", method: patch, path: "/apis/apps/v1/namespaces/pipeops/deployments/pipeops-agent/status", body: `{"status":{"replicas":0}}`, want: forbidden},
		{name: "finalizers elsewhere", tries: "hold another team's Secret", method: patch, path: ns + "payroll/secrets/canary", body: `{"metadata":{"finalizers":["example.com/evil"]}}`, want: forbidden},
		{name: "an owner elsewhere", tries: "have the collector delete another team's Secret", method: patch, path: ns + "payroll/secrets/canary", body: `{"metadata":{"ownerReferences":[]}}`, want: forbidden},
		{name: "a dry run elsewhere", tries: "write by a dry run that is none", method: post, path: ns + "payroll/secrets?dryRun=All&dryRun=", body: `{"apiVersion":"v1","kind":"` + own + `","metadata":{"name":"evil"}}`, want: append([]string{"400 BadRequest", "422 Invalid"}, forbidden...)},
		{name: "review of the agent's rights", tries: "see what the agent may", method: post, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"admin"}}`, want: forbidden},
		{name: "review of tokens", tries: "try tokens", method: post, path: "/apis/authentication.k8s.io/v1/tokenreviews", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"a"}}`, want: forbidden},
		{name: "metrics of the API server", tries: "read names of everything", method: get, path: "/metrics", want: ambiguous},
		{name: "profiles of the API server", tries: "read its memory", method: get, path: "/debug/pprof/heap", want: ambiguous},
		{name: "logs of the API server's machine", tries: "read files", method: get, path: "/logs/", want: ambiguous},
	})
}

// privileged are pods beyond the baseline, in the namespace that the user may edit.
func privileged(post, container string) (out []kubernetes) {
	for name, fields := range map[string]string{
		"a privileged pod":                 `"containers":[{"name":"c","image":"x","securityContext":{"privileged":true}}]`,
		"a privileged init container":      `"initContainers":[{"name":"i","image":"x","securityContext":{"privileged":true}}],` + container,
		"a host port":                      `"containers":[{"name":"c","image":"x","ports":[{"containerPort":80,"hostPort":80}]}]`,
		"a host port of an init container": `"initContainers":[{"name":"i","image":"x","ports":[{"containerPort":80,"hostPort":80}]}],` + container,
		"the node's network":               `"hostNetwork":true,` + container,
		"the node's processes":             `"hostPID":true,` + container,
		"a folder of the node":             `"volumes":[{"name":"v","hostPath":{"path":"/"}}],` + container,
		"a sysctl":                         `"securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]},` + container,
		"SELinux as another":               `"securityContext":{"seLinuxOptions":{"type":"spc_t"}},` + container,
		"an unmasked /proc":                `"containers":[{"name":"c","image":"x","securityContext":{"procMount":"Unmasked"}}]`,
	} {
		out = append(out, kubernetes{
			name: name, tries: "make a pod beyond the baseline", method: post, path: ns + "production/pods", body: pod(fields), want: append([]string{"422 Invalid"}, forbidden...),
		})
	}
	slices.SortFunc(out, func(a, b kubernetes) int { return len(a.name) - len(b.name) })
	return out
}
