package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

const digest = "h1:abcdefghijklmnopqrstuvwxyzabcdefghijklmnopq="

const chartPolicy = `
rules:
  - name: ksm
    runners: [ci]
    namespaces: [shop]
    commands: [put-release, rollback-release, delete-release]
    releases: [ksm]
    charts: [{name: kube-state-metrics, version: 5.2.1, digest: "` + digest + `"}]
    kinds: [Deployment.apps, ClusterRole.rbac.authorization.k8s.io/ksm]
  - name: others
    namespaces: [shop]
    commands: [read, write, put-release]
    kinds: [ConfigMap]
`

func release(name string, chart runnerapi.ChartIntent, objects ...runnerapi.ObjectIntent) runnerapi.Intent {
	i := intent("ci", "put-release", "shop")
	i.Name, i.Objects, i.Chart = name, objects, &chart
	return i
}

// TestCharts_OneVersion tries what a rule for one chart does not allow.
func TestCharts_OneVersion(t *testing.T) {
	p := load(t, chartPolicy)
	role := func(name string) runnerapi.ObjectIntent {
		return runnerapi.ObjectIntent{Kind: "ClusterRole.rbac.authorization.k8s.io", Name: name}
	}
	chart := runnerapi.ChartIntent{Name: "kube-state-metrics", Version: "5.2.1", Digest: digest, Source: "--chart oci://registry.example.com/ksm --version 5.2.1"}
	require.NoError(t, p.Decide(release("ksm", chart, role("ksm"), runnerapi.ObjectIntent{Kind: "Deployment.apps", Name: "a"})))
	require.NoError(t, p.Decide(intent("ci", "get-app", "shop")), "a rule about releases is about no other call")
	unknown := release("ksm", chart)
	unknown.Chart = nil
	require.NoError(t, p.Decide(unknown), "the chart is not known yet")
	lookup := runnerapi.ObjectIntent{Kind: "ConfigMap", LookedUp: true}
	require.NoError(t, p.Decide(release("ksm", chart, lookup)))

	newer, other, same := chart, chart, chart
	newer.Version, other.Name, same.Digest = "5.3.0", "grafana", "h1:bbcdefghijklmnopqrstuvwxyzabcdefghijklmnopq="
	for says, i := range map[string]runnerapi.Intent{
		"allows the chart kube-state-metrics 5.2.1 " + digest + ", not kube-state-metrics 5.3.0": release("ksm", newer, role("ksm")),
		"with the digest " + same.Digest:             release("ksm", same, role("ksm")),
		"not grafana 5.2.1":                          release("ksm", other, lookup),
		"ClusterRole.rbac.authorization.k8s.io/evil": release("ksm", chart, role("evil")),
		`rule "others" of the customer's policy allows objects of ConfigMap, not of ClusterRole`: release("grafana", other, role("ksm")),
	} {
		e := problemtest.Of(t, p.Decide(i), says)
		assert.Contains(t, e.Detail, says)
		assert.Contains(t, e.Fix, "pipeops-agent chart allow "+i.Name+" -n shop --runner ci --chart oci://registry.example.com/ksm --version 5.2.1")
	}
	back := release("ksm", runnerapi.ChartIntent{Name: chart.Name, Version: chart.Version}, role("ksm"))
	back.Command = "rollback-release"
	e := problemtest.Of(t, p.Decide(back), "a revision that is kept")
	assert.Contains(t, e.Detail, "deploy the chart again")
	i := release("ksm", chart)
	i.Runner, i.Namespace, i.Chart = "bot", "web", nil
	assert.Contains(t, problemtest.Of(t, p.Decide(i), "no rule").Fix, "pipeops-agent chart allow ksm -n web --runner bot --chart CHART")
}

func TestCharts_Validated(t *testing.T) {
	for text, field := range map[string]string{
		"{name: a, charts: [{name: x, version: 1.0.0}]}":                                                "rules[0].charts",
		"{name: a, commands: [put-release], charts: [{name: x y, version: 1.0.0}]}":                     "rules[0].charts[0].name",
		"{name: a, commands: [put-release], charts: [{name: x, version: ^1.0}]}":                        "rules[0].charts[0].version",
		"{name: a, commands: [put-release], charts: [{name: x, version: 1.0.0, digest: 'sha256:abc'}]}": "rules[0].charts[0].digest",
		"{name: a, commands: [put-release], kinds: ['ClusterRole.rbac.authorization.k8s.io/']}":         "rules[0].kinds[0]",
		"{name: a, commands: [put-release], kinds: ['ClusterRole/*']}":                                  "rules[0].kinds[0]",
		"{name: a, releases: ['a b']}":                                                                  "rules[0].releases[0]",
		"{name: a, deny: true, commands: [put-release], charts: [{name: x, version: 1.0.0}]}":           "rules[0].deny",
	} {
		_, err := policy.Parse([]byte("rules: [" + text + "]"))
		assert.Equal(t, field, problemtest.Of(t, err, text).Field, text)
	}
}

// TestCharts_ClusterScoped: kinds "*" of a rule about namespaces stands for what is in them.
func TestCharts_ClusterScoped(t *testing.T) {
	priority := runnerapi.ObjectIntent{Kind: "PriorityClass.scheduling.k8s.io", Name: "high", ClusterScoped: true}
	config := runnerapi.ObjectIntent{Kind: "ConfigMap", Name: "a"}
	for _, command := range []string{"put-release", "rollback-release"} {
		decide := func(selects string, o runnerapi.ObjectIntent) error {
			i := intent("ci", command, "shop")
			i.Name, i.Objects = "web", []runnerapi.ObjectIntent{o}
			return load(t, "rules: [{name: r, commands: [put-release, rollback-release], "+selects+"}]").Decide(i)
		}
		require.NoError(t, decide(`namespaces: [shop], kinds: ["*"]`, config))
		for _, selects := range []string{`namespaces: [shop], kinds: ["*"]`, `namespaces: ["s*", shop], kinds: ["*", PriorityClass.scheduling.k8s.io/low]`} {
			e := problemtest.Of(t, decide(selects, priority), selects)
			assert.Contains(t, e.Detail, "not of the cluster-scoped PriorityClass.scheduling.k8s.io/high", selects)
		}
		for _, selects := range []string{
			`kinds: ["*"]`, `namespaces: ["*"], kinds: ["*"]`, `namespaces: [shop, "*"], kinds: ["*"]`,
			`namespaces: [shop], kinds: [PriorityClass.scheduling.k8s.io/high]`, `namespaces: [shop], kinds: [PriorityClass.scheduling.k8s.io]`,
		} {
			require.NoError(t, decide(selects, priority), selects)
		}
	}
}
