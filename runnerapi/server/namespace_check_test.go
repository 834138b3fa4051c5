package server_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// notTheirs denies one namespace, and allows all else.
const notTheirs = `
rules:
  - name: not theirs
    deny: true
    namespaces: [payroll]
  - name: the rest
    commands: ["*", drain-node, apply-manifests, kubernetes-api]
    kinds: ["*"]
    kubernetes: {user: somebody}
`

// ruled is a fake agent with two namespaces, an App in each, and a policy of the real kind.
func ruled(t *testing.T, rules string) (*client.Client, *apiServer, *raw) {
	t.Helper()
	agent, api, _, _ := kubernetes(t)
	client := agent.Client()
	public := runnerapi.AppSpec{Image: "web", Ports: []runnerapi.Port{{Port: 8080}}, Ingress: &runnerapi.Ingress{Public: true}}
	for _, namespace := range []string{"production", "payroll"} {
		_, err := client.Namespaces().Set(t.Context(), namespace, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
		require.NoError(t, err)
		_, err = client.Apps().Deploy(t.Context(), runnerapi.Key{Namespace: namespace, Name: "web"}, public, runnerapi.WriteOptions{})
		require.NoError(t, err)
	}
	p := policyOf(t, rules)
	agent.Stop()
	agent.Policy, agent.Audit = p, pages{"production", "payroll", "", "payroll", "payroll", "production"}
	agent.Start()
	return agent.Client(), api, newRaw(t, agent)
}

// pages is an audit log of one record for each namespace.
type pages []string

func (pages) Record(runnerapi.AuditRecord) {}

func (pages) Keep(context.Context, runnerapi.AuditRecord) error { return nil }

func (p pages) List(_ context.Context, after int64, limit int) (list runnerapi.AuditList, err error) {
	for n, namespace := range p {
		if seq := int64(n + 1); seq > after && len(list.Items) < limit {
			list.Items = append(list.Items, runnerapi.AuditCall{AuditRecord: runnerapi.AuditRecord{Seq: seq, Namespace: namespace, Outcome: runnerapi.AuditDone, Time: time.Unix(seq, 0)}})
		}
	}
	list.Head.Seq = int64(len(p))
	return list, nil
}

func (p pages) Find(ctx context.Context, _ runnerapi.AuditFilter, visible func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error) {
	list, err := p.List(ctx, 0, len(p))
	list.Items = slices.DeleteFunc(list.Items, func(c runnerapi.AuditCall) bool { return !visible(c.AuditRecord) })
	return list, err
}

func namespaces[T any](of []T, in func(T) string) (all []string) {
	for _, item := range of {
		all = append(all, in(item))
	}
	return all
}

// shown has, of each call that is filtered, which namespaces it shows to a Runner.
var shown = map[string]func(*testing.T, *client.Client, *apiServer, *raw) []string{
	"list-apps": func(t *testing.T, c *client.Client, _ *apiServer, _ *raw) []string {
		apps, err := c.Apps().List(t.Context(), "")
		require.NoError(t, err)
		return namespaces(apps, func(of runnerapi.App) string { return of.Namespace })
	},
	"list-namespaces": func(t *testing.T, c *client.Client, _ *apiServer, _ *raw) []string {
		all, err := c.Namespaces().List(t.Context())
		require.NoError(t, err)
		return namespaces(all, func(of runnerapi.Namespace) string { return of.Name })
	},
	"list-routes": func(t *testing.T, c *client.Client, _ *apiServer, _ *raw) []string {
		routes, err := c.Routes().List(t.Context())
		require.NoError(t, err)
		return namespaces(routes, func(of runnerapi.Route) string { return of.Namespace })
	},
	"list-alerts": func(t *testing.T, c *client.Client, _ *apiServer, _ *raw) []string {
		list, err := c.Monitoring().Alerts(t.Context(), "")
		require.NoError(t, err)
		return namespaces(list.Items, func(of runnerapi.Alert) string { return of.Namespace })
	},
	"get-cost": func(t *testing.T, c *client.Client, _ *apiServer, _ *raw) []string {
		list, err := c.Monitoring().Cost(t.Context(), runnerapi.CostOptions{})
		require.NoError(t, err)
		return namespaces(list.Items, func(of runnerapi.Cost) string { return of.Namespace })
	},
	"list-audit": func(t *testing.T, c *client.Client, _ *apiServer, _ *raw) (in []string) {
		for after := int64(0); ; {
			list, err := c.Audit().List(t.Context(), after, 1)
			require.NoError(t, err)
			if len(list.Items) == 0 {
				return in
			}
			in = append(in, list.Items[0].Namespace)
			after = list.Items[0].Seq
		}
	},
	"drain-node": func(t *testing.T, c *client.Client, _ *apiServer, _ *raw) (in []string) {
		drain, err := c.Nodes().Drain(t.Context(), runnertest.NodeName, runnerapi.DrainOptions{}, runnerapi.WriteOptions{DryRun: true}, func(runnerapi.Drain) {})
		require.NoError(t, err)
		for _, p := range drain.Remaining {
			in = append(in, p.Namespace)
		}
		return append(in, "production") // whose pod it may be
	},
	runnerapi.KubernetesCall: func(t *testing.T, _ *client.Client, api *apiServer, r *raw) (in []string) {
		resp, answer := r.do(http.MethodGet, "/v1/kubernetes/api/v1/pods", "")
		require.Equal(t, http.StatusOK, resp.StatusCode, string(answer))
		selector := api.last().URL.Query().Get("fieldSelector")
		for _, namespace := range []string{"production", "payroll"} {
			if !strings.Contains(selector, "metadata.namespace!="+namespace) {
				in = append(in, namespace)
			}
		}
		return in
	},
}

// A call without a namespace has to declare how rules about namespaces hold for it; a call that
// filters is tried.
func TestNamespaceCheck_FiltersCalls(t *testing.T) {
	for _, c := range runnerapi.Calls() {
		if c.Access == runnerapi.Open {
			continue
		}
		how, within, found := runnerapi.NamespaceCheckOf(c.ID)
		require.Equal(t, !strings.Contains(c.Path, "{namespace}"), found, "%s: namespaceChecks has the calls without a namespace", c.ID)
		for _, name := range within {
			assert.Contains(t, policy.Commands(), name, c.ID)
		}
		if how != runnerapi.NamespaceCheckFilter {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			show := shown[c.ID]
			require.NotNil(t, show, "say here how the call shows namespaces")
			client, api, r := ruled(t, notTheirs)
			in := show(t, client, api, r)
			assert.Contains(t, in, "production")
			assert.NotContains(t, in, "payroll")
		})
	}
}

// The drain evicts them all the same: it is about the node.
func TestNamespaceCheck_DrainHidesPods(t *testing.T) {
	client, _, _ := ruled(t, strings.Replace(notTheirs, "[payroll]", "[production]", 1))
	drain, err := client.Nodes().Drain(t.Context(), runnertest.NodeName, runnerapi.DrainOptions{}, runnerapi.WriteOptions{DryRun: true}, func(runnerapi.Drain) {})
	require.NoError(t, err)
	assert.Empty(t, drain.Remaining)
}

func TestNamespaceCheck_OperationsAndApply(t *testing.T) {
	agent, _, _, _ := kubernetes(t)
	app, err := agent.Client().Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "web"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, app.Operation)
	p := policyOf(t, strings.Replace(notTheirs, "[payroll]", "[production]", 1))
	agent.Stop()
	agent.Policy = p
	agent.Start()
	r := newRaw(t, agent)
	resp, answer := r.do(http.MethodGet, "/v1/operations/"+app.Operation, "")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode, string(answer))
	resp, answer = r.do(http.MethodPost, "/v1/apply?namespace=production&set=a", "kind: ConfigMap", "Content-Type", "application/yaml")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode, string(answer))
}

// A namespace that is denied by its name is left out. Where a pattern denies some, nothing is
// allowed over all namespaces.
func TestNamespaceCheck_KubernetesAPI(t *testing.T) {
	byPattern := strings.Replace(notTheirs, "[payroll]", "[payroll, hr-*]", 1)
	var (
		r     *raw
		api   *apiServer
		rules string // those that r is under
	)
	for n, c := range []struct {
		rules, path string
		status      int
		selector    string
	}{
		{notTheirs, "/api/v1/pods", 200, "metadata.namespace!=pipeops,metadata.namespace!=payroll"},
		{notTheirs, "/api/v1/pods?watch=0&fieldSelector=a%3Db", 200, "a=b,metadata.namespace!=pipeops,metadata.namespace!=payroll"},
		{notTheirs, "/api/v1/namespaces", 200, "metadata.name!=payroll"},
		{notTheirs, "/api/v1/namespaces/payroll", 403, ""},
		{notTheirs, "/api/v1/namespaces/payroll/pods", 403, ""},
		{notTheirs, "/api/v1/pods?fieldSelector=metadata.namespace%3Dpayroll", 403, ""},
		{notTheirs, "/api/v1/watch/pods?fieldSelector=metadata.namespace%3Dpayroll", 403, ""},
		{notTheirs, "/apis/example.com/v1/watch/widgets/a", 200, "metadata.name=a,metadata.namespace!=pipeops,metadata.namespace!=payroll"},
		{notTheirs, "/apis/example.com/v1/watch/widgets/a?fieldSelector=metadata.namespace%3Dpayroll", 403, ""},
		{notTheirs, "/api/v1/watch/namespaces/payroll", 403, ""},
		{notTheirs, "/api/v1/watch/nodes/a", 200, ""},
		{notTheirs, "/api/v1/nodes", 200, ""},
		{notTheirs, "/api/v1/nodes/a/proxy/pods", 403, ""},
		{byPattern, "/api/v1/pods", 403, ""},
		{byPattern, "/api/v1/namespaces", 403, ""},
		{byPattern, "/apis/example.com/v1/watch/widgets/a", 403, ""},
		{byPattern, "/api/v1/watch/nodes/a", 200, ""},
		{byPattern, "/api/v1/nodes", 200, ""},
		{byPattern, "/api/v1/namespaces/shop/pods", 200, ""},
		{byPattern, "/api/v1/pods?fieldSelector=metadata.namespace%3Dhr-1", 403, ""},
		{byPattern, "/api/v1/pods?fieldSelector=metadata.namespace%3Dshop", 200, "metadata.namespace=shop,metadata.namespace!=pipeops"},
	} {
		if c.rules != rules {
			r, api = underRules(t, c.rules)
			rules = c.rules
		}
		t.Run(strconv.Itoa(n)+c.path, func(t *testing.T) {
			resp, answer := r.do(http.MethodGet, "/v1/kubernetes"+c.path, "")
			require.Equal(t, c.status, resp.StatusCode, string(answer))
			if c.status == http.StatusOK {
				assert.Equal(t, c.selector, api.last().URL.Query().Get("fieldSelector"))
			}
		})
	}
	require.Equal(t, byPattern, rules)
	for body, says := range map[string]string{
		`{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`:                                                     "by a pattern (hr-*)",
		`{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"hr-1"}}}`:                                  "not theirs",
		`{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","name":"a"}}}`:                                          "by a pattern (hr-*)",
		`{"spec":{"resourceAttributes":{"verb":"watch","group":"example.com","version":"v1","resource":"widgets","name":"a"}}}`: "by a pattern (hr-*)",
		`{"spec":{"resourceAttributes":{"verb":"get","resource":"namespaces","name":"hr-1"}}}`:                                  "not theirs",
		`{"spec":{"resourceAttributes":{"verb":"get","resource":"nodes","subresource":"proxy"}}}`:                               "",
	} {
		_, answer := r.do(http.MethodPost, reviews+"selfsubjectaccessreviews", body, "Content-Type", "application/json")
		assert.Contains(t, string(answer), `"denied":true`, body)
		assert.Contains(t, string(answer), says, body)
	}
}

// The policy becomes narrower during the watch.
func TestNamespaceCheck_WatchEnds(t *testing.T) {
	p := policyOf(t, notTheirs)
	watch := runnerapi.Intent{Command: runnerapi.KubernetesCall, Access: runnerapi.Named, Runner: "a", Kubernetes: &runnerapi.KubernetesRequest{
		Verb: "watch", Resource: "pods", AgentNamespace: "pipeops",
	}}
	var err error
	watch.Kubernetes.Grant, err = p.KubernetesGrant(watch)
	require.NoError(t, err)
	require.NoError(t, p.Decide(watch))
	setRules(t, p, strings.Replace(notTheirs, "[payroll]", "[payroll, shop]", 1))
	require.ErrorContains(t, p.Decide(watch), "hides other namespaces")
	rule, err := p.Explain(watch)
	require.Error(t, err)
	assert.Empty(t, rule, "no rule allows it any more")
	setRules(t, p, strings.Replace(notTheirs, "[payroll]", "[payroll, hr-*]", 1))
	require.ErrorContains(t, p.Decide(watch), "hides other namespaces")
}
