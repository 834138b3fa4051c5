package attackers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRunnerAPI_HostileRunner has a Runner with the default policy try what issues and reviews have
// thought of.
func TestRunnerAPI_HostileRunner(t *testing.T) {
	s := open(t, func() {
		c := newCaller(t, honest)
		for _, path := range []string{"/v1/cluster", "/v1/apps", "/v1/namespaces", "/v1/nodes", "/v1/audit", "/v1/namespaces/production/secrets"} {
			got := c.call(t.Context(), http.MethodGet, path, nil, nil)
			require.Equal(t, http.StatusOK, got.status, "%v", got)
		}
		got := c.call(t.Context(), http.MethodPut, "/v1/namespaces/production/apps/honest?wait=60s", `{"image":"`+image+`","ports":[{"port":8080}]}`, nil)
		require.Equal(t, http.StatusOK, got.status, "%v", got)
		got = c.call(t.Context(), http.MethodPut, "/v1/namespaces/production/configmaps/honest", `{"data":{"a":"`+strings.Repeat("a", 900<<10)+`"}}`, nil)
		require.Less(t, got.status, 300, "%v", got)
	})
	c := newCaller(t, evil)
	s.try(t, c, slices.Concat(specs(), places(), bodies(), inside(), kubernetesClosed()))
	s.close()
	got := newCaller(t, honest).call(t.Context(), http.MethodGet, "/v1/namespaces/production/apps/honest", nil, nil)
	assert.Equal(t, http.StatusOK, got.status, "others are served: %v", got)
}

// app is an attempt by a spec of an App; more is added to a good one.
func app(name, tries, more string, want ...string) attempt {
	return attempt{name: name, tries: tries, want: want, do: send(http.MethodPut, "/v1/namespaces/production/apps/evil", `{"image":"`+image+`",`+more+`}`)}
}

func invalidApp(name, tries, more string) attempt {
	return app(name, tries, more, "422 invalid")
}

func denied(name, tries, more string) attempt {
	return app(name, tries, more, "403 policy_denied")
}

// ingress is the part of a spec with a host and an annotation, if there is one.
func ingress(host, annotation string) string {
	more := ""
	if annotation != "" {
		more = `,"annotations":{"` + annotation + `":"a"}`
	}
	return `"ports":[{"port":8080}],"ingress":{"hosts":[{"host":"` + host + `"}]` + more + `}`
}

// specs are Apps, Jobs and Secrets that ask for more than they may.
func specs() []attempt {
	return []attempt{
		invalidApp("privileged", "make a privileged container", `"security":{"privileged":true}`),
		app("root, as far as the baseline goes", "have a pod that is less confined than others", `"security":{"allowRoot":true,"allowPrivilegeEscalation":true,"runAsUser":0,"addCapabilities":["MKNOD","NET_BIND_SERVICE"]}`, "202"),
		invalidApp("host network", "join the node's network", `"hostNetwork":true`),
		invalidApp("host path", "mount a folder of the node", `"volumes":[{"name":"a","mountPath":"/a","hostPath":"/"}]`),
		invalidApp("host port", "open a port of the node", `"ports":[{"port":8080,"hostPort":80}]`),
		invalidApp("host port of an init container", "open a port of the node", `"initContainers":[{"name":"a","image":"a","ports":[{"port":80,"hostPort":80}]}]`),
		invalidApp("a capability", "have CAP_SYS_ADMIN", `"security":{"addCapabilities":["SYS_ADMIN"]}`),
		invalidApp("a file of another namespace", "mount another team's Secret", `"files":[{"path":"/a","secret":{"name":"../payroll/canary"}}]`),
		denied("AppArmor by annotation", "loosen AppArmor", `"podAnnotations":{"container.apparmor.security.beta.kubernetes.io/app":"unconfined"}`),
		denied("seccomp by annotation", "loosen seccomp", `"podAnnotations":{"seccomp.security.alpha.kubernetes.io/pod":"unconfined"}`),
		denied("CRI-O by annotation", "have devices of the node", `"podAnnotations":{"io.kubernetes.cri-o.Devices":"/dev/sda"}`),
		denied("Istio by annotation", "mount a Secret into a sidecar", `"podAnnotations":{"sidecar.istio.io/userVolume":"{}"}`),
		denied("a snippet of the ingress controller", "write into a shared configuration", ingress("a.example.com", "nginx.ingress.kubernetes.io/server-snippet")),
		denied("a certificate by annotation", "have a certificate issued", ingress("a.example.com", "cert-manager.io/cluster-issuer")),
		denied("a DNS name by annotation", "take a name in the DNS", `"podAnnotations":{"external-dns.alpha.kubernetes.io/hostname":"bank.example.com"}`),
		denied("every host", "take all hosts by a wildcard", ingress("*.example.com", "")),
		invalidApp("no host at all", "be the backend of all requests", ingress("", "")),
		invalidApp("labels of another App", "be a pod of another App's Service", `"podLabels":{"pipeops.io/app":"honest"}`),
		invalidApp("labels of the agent", "be taken for the agent's", `"podLabels":{"app.kubernetes.io/managed-by":"other"}`),
		invalidApp("control characters in the image", "write into a terminal", `"env":[{"name":"A\u001b[2J","value":"a"}]`),
		invalidApp("a million pods", "fill the cluster", `"replicas":1000000`),
		app("fields twice", "have two readings of a body", `"replicas":1,"image":"other:1"`, "400 bad_request"),
		invalidApp("an unknown field of a pod", "reach through to the pod's spec", `"template":{"spec":{"hostPID":true}}`),
		{
			name: "a Secret of a name that leads elsewhere", tries: "write a Secret of another namespace", want: one("422 invalid"),
			do: send(http.MethodPut, "/v1/namespaces/production/secrets/..%2f..%2fpayroll%2fsecrets%2fcanary", `{"data":{"a":"b"}}`),
		},
		{
			name: "take over a Secret of others", tries: "change a Secret that it did not make", want: one("409 conflict"),
			do: send(http.MethodPut, "/v1/namespaces/production/secrets/canary", `{"data":{"value":"b"}}`),
		},
		{
			name: "delete a Secret of others", tries: "delete a Secret that it did not make", want: one("404 not_found"),
			do: send(http.MethodDelete, "/v1/namespaces/production/secrets/canary", nil),
		},
		{
			name: "read a Secret of others", tries: "read its value", want: one("404 not_found"),
			do: send(http.MethodGet, "/v1/namespaces/production/secrets/canary", nil),
		},
		{
			name: "a token as a Secret", tries: "have Kubernetes write a token", want: one("422 invalid"),
			do: send(http.MethodPut, "/v1/namespaces/production/secrets/token", `{"type":"kubernetes.io/service-account-token","data":{"a":"b"}}`),
		},
	}
}

// places are calls about namespaces and objects that are not the Runner's.
func places() (out []attempt) {
	theirs := []string{"403 namespace_not_managed", "403 forbidden", "403 policy_denied"}
	for _, namespace := range []string{payroll, agentSpace, "kube-system", "default"} {
		out = append(
			out,
			attempt{
				name: "an App in " + namespace, tries: "write outside of its namespaces", want: theirs,
				do: send(http.MethodPut, "/v1/namespaces/"+namespace+"/apps/evil", `{"image":"`+image+`"}`),
			},
			attempt{
				name: "Secrets of " + namespace, tries: "list Secrets", want: theirs,
				do: send(http.MethodGet, "/v1/namespaces/"+namespace+"/secrets", nil),
			},
			attempt{
				name: "a ConfigMap in " + namespace, tries: "write outside of its namespaces", want: theirs,
				do: send(http.MethodPut, "/v1/namespaces/"+namespace+"/configmaps/pipeops-policy", `{"data":{"policy.yaml":"rules: []"}}`),
			},
			attempt{
				name: "adopt " + namespace, tries: "take a namespace over", want: theirs,
				do: send(http.MethodPut, "/v1/namespaces/"+namespace, `{"adopt":true}`),
			},
			attempt{
				name: "delete " + namespace, tries: "delete a namespace", want: theirs,
				do: send(http.MethodDelete, "/v1/namespaces/"+namespace, nil),
			},
			attempt{
				name: "events of " + namespace, tries: "read what happens elsewhere", want: theirs,
				do: send(http.MethodGet, "/v1/namespaces/"+namespace+"/events", nil),
			},
		)
	}
	return append(
		out,
		attempt{
			name: "loosen pod security", tries: "label a namespace privileged", want: one("422 invalid"),
			do: send(http.MethodPut, "/v1/namespaces/production", `{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}`),
		},
		attempt{
			name: "a namespace of a reserved name", tries: "make kube-evil", want: theirs,
			do: send(http.MethodPut, "/v1/namespaces/kube-evil", `{}`),
		},
		attempt{
			name: "allow builds", tries: "label a namespace for privileged builds", want: one("422 invalid"),
			do: send(http.MethodPut, "/v1/namespaces/production", `{"labels":{"pipeops.io/builds":"allowed"}}`),
		},
		attempt{
			name: "Apps of all namespaces", tries: "read Apps of another team", want: one("200"),
			do: send(http.MethodGet, "/v1/apps", nil), within: without(payroll),
		},
		attempt{
			name: "namespaces of others", tries: "list namespaces that are not managed", want: one("200"),
			do: send(http.MethodGet, "/v1/namespaces", nil), within: without(`"` + payroll + `"`),
		},
		attempt{
			name: "an operation of others", tries: "read an operation by a guessed ID", want: one("404 not_found"),
			do: send(http.MethodGet, "/v1/operations/abcdefgh01234567", nil),
		},
	)
}

// bodies are more, deeper and slower than an honest Runner's.
func bodies() []attempt {
	tooMuch := []string{"413 too_large", "400 bad_request"}
	put := "/v1/namespaces/production/apps/evil"
	return []attempt{
		{
			name: "64 MiB of a spec", tries: "fill the agent's memory", want: one("413 too_large"),
			do: send(http.MethodPut, put, endless(64<<20, `{"image":"`)),
		},
		{
			name: "64 MiB of a chart", tries: "fill the agent's memory", want: one("403 policy_denied"),
			do: send(http.MethodPut, "/v1/namespaces/production/releases/evil", endless(64<<20, "A")),
		},
		{
			name: "a million brackets", tries: "overflow a stack", want: tooMuch,
			do: send(http.MethodPut, put, endless(60_000, "[")),
		},
		{
			name: "a million keys", tries: "fill the agent's memory by a small body", want: tooMuch,
			do: send(http.MethodPut, "/v1/namespaces/production/configmaps/evil", manyKeys(200_000)),
		},
		{
			name: "many empty values", tries: "have the audit log decode what the call refused", want: tooMuch,
			do: send(http.MethodPut, "/v1/namespaces/production/configmaps/evil", `{"a":[`+strings.Repeat("{},", 300_000)+`{}]}`),
		},
		{
			name: "a body in gzip", tries: "unpack to gigabytes", want: one("415 media_type"),
			do: send(http.MethodPut, put, "\x1f\x8b\x08\x00\x00", "Content-Encoding", "gzip"),
		},
		{
			name: "YAML as a body", tries: "reach another decoder", want: one("415 media_type"),
			do: send(http.MethodPut, put, "image: a", "Content-Type", "application/yaml"),
		},
		{
			name: "an alias bomb in appSpec", tries: "expand aliases in the agent", want: one("403 policy_denied"),
			do: send(http.MethodPut, "/v1/namespaces/production/sources/evil", map[string]any{
				"url": "https://git.example.com/a.git", "type": "app", "appSpec": aliasBomb(9),
			}),
		},
		{
			name: "a source that climbs", tries: "leave a credential's scope", want: one("403 policy_denied"),
			do: send(http.MethodPut, "/v1/namespaces/production/sources/evil", `{"url":"https://git.example.com/shop/%2e%2e/payroll.git","type":"manifests"}`),
		},
		{
			name: "a build with any Secret as a CA", tries: "mount a Secret whole", want: one("403 policy_denied"),
			do: send(http.MethodPut, "/v1/namespaces/production/builds/evil", `{"git":{"url":"https://git.example.com/a.git"},"image":"registry.example.com/a","ca":{"secret":"canary"}}`),
		},
		{
			name: "manifests", tries: "apply a ClusterRoleBinding", want: one("403 policy_denied"),
			do: send(http.MethodPost, "/v1/apply?namespace=production&set=evil", "apiVersion: v1\nkind: Secret\n", "Content-Type", "application/yaml"),
		},
		{
			name: "a header of a MiB", tries: "fill the agent's memory", want: one("431 too_large"),
			do: send(http.MethodGet, "/v1/cluster", nil, "X-A", strings.Repeat("a", 1<<20), "Connection", "keep-alive"),
		},
		{
			name: "a thousand headers", tries: "fill the agent's memory", want: one("200"),
			do: send(http.MethodGet, "/v1/cluster", nil, thousandHeaders()...),
		},
		{
			name: "a long idempotency key", tries: "fill the journal", want: one("422 invalid"),
			do: send(http.MethodPut, put+"?dryRun=true", `{"image":"a"}`, "Idempotency-Key", strings.Repeat("k", 4096)),
		},
		{
			name: "a wait without end", tries: "hold calls", want: one("422 invalid"),
			do: send(http.MethodGet, "/v1/namespaces/production/apps/honest?wait=9999h", nil),
		},
		{
			name: "log lines without end", tries: "fill the agent's memory", want: one("422 invalid"),
			do: send(http.MethodGet, "/v1/namespaces/production/apps/honest/logs?tail=999999999", nil),
		},
	}
}

// inside are calls that lead into pods and nodes.
func inside() (out []attempt) {
	for _, path := range []string{
		"/v1/namespaces/production/apps/honest/exec?command=id", "/v1/namespaces/production/apps/honest/portforward?port=8080",
		"/v1/namespaces/pipeops/apps/pipeops-agent/exec?command=id", "/v1/namespaces/kube-system/apps/coredns/exec?command=id",
	} {
		out = append(out, attempt{
			name: "upgrade " + path, tries: "get into a pod", want: one("403 policy_denied"),
			do: send(http.MethodGet, path, nil, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13", "Sec-Websocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
		})
	}
	for _, verb := range []string{"cordon", "uncordon", "drain"} {
		out = append(out, attempt{
			name: verb + " the node", tries: "stop the cluster's node", want: one("403 policy_denied"),
			do: func(ctx context.Context, c *caller) answer {
				return c.call(ctx, http.MethodPost, "/v1/nodes/"+sys.Cluster.NodeName()+"/"+verb, nil, nil)
			},
		})
	}
	return append(out, attempt{
		name: "the token for joining", tries: "make a node", want: one("403 policy_denied"),
		do: send(http.MethodGet, "/v1/cluster/join/token", nil),
	})
}

// aliasBomb is YAML of a few hundred bytes that stands for 10^levels values.
func aliasBomb(levels int) string {
	var out strings.Builder
	out.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < levels; i++ {
		fmt.Fprintf(&out, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	return out.String()
}

func manyKeys(n int) string {
	var out strings.Builder
	out.WriteString(`{"data":{`)
	for i := range n {
		fmt.Fprintf(&out, `"%x":"",`, i)
	}
	return out.String() + `"z":""}}`
}

func thousandHeaders() (out []string) {
	for i := range 1000 {
		out = append(out, fmt.Sprintf("X-%d", i), "a")
	}
	return out
}
