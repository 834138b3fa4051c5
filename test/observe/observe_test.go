// Package observe tests what is made of the metrics: alert rules, dashboards and their page
// in docs, against the metrics that there are.
package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/test/golden"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

const (
	rules        = "deployments/prometheus/rules.yaml"
	clusterRules = "deployments/prometheus/cluster.yaml" // about others' metrics
	dashboards   = "deployments/grafana/*.json"
	logsBoard    = "logs.json" // whose queries are Loki's
	page         = "docs/reference/metrics.md"
	metricsPage  = "docs/reference/metrics.md"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), path))
	require.NoError(t, err)
	return string(text)
}

// promtool is Prometheus' own tool.
func promtool(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles promtool")
	}
	path, err := programs.Promtool.Build(t.Context())
	require.NoError(t, err)
	require.NoError(t, inputs.Depend(filepath.Dir(rules)))
	return path
}

// approves has promtool read a document.
func approves(t *testing.T, tool string, document any, command ...string) {
	t.Helper()
	text, err := yaml.Marshal(document)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "document.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	out, err := exec.CommandContext(t.Context(), tool, append(command, path)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestAlerts_Fire has promtool check the rules, and run their own tests.
func TestAlerts_Fire(t *testing.T) {
	tool := promtool(t)
	check := []string{"check", "rules", "--lint=all", "--lint-fatal"}
	for _, args := range [][]string{append(check, rules, clusterRules), {"test", "rules", testsOf(rules)}, {"test", "rules", testsOf(clusterRules)}} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		cmd := exec.CommandContext(ctx, tool, args...)
		cmd.Dir = harness.Root()
		out, err := cmd.CombinedOutput()
		cancel()
		require.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
	}
}

type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

// testsOf returns the file with promtool's tests of a file of rules.
func testsOf(rules string) string { return strings.TrimSuffix(rules, ".yaml") + "_test.yaml" }

func alerts(t *testing.T, rules string) (all []alert) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal([]byte(read(t, rules)), &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// TestAlerts_HaveRunbooks: a heading of the page, with the cause and the fix; and that it is
// tested.
func TestAlerts_HaveRunbooks(t *testing.T) {
	doc, all := read(t, page), append(alerts(t, rules), alerts(t, clusterRules)...)
	tests := read(t, testsOf(rules)) + read(t, testsOf(clusterRules))
	for _, a := range all {
		assert.Contains(t, []string{"critical", "warning"}, a.Labels["severity"], a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], a.Alert)
		assert.Equal(t, "https://github.com/pipeops/pipeops-vm-agent/blob/main/"+page+"#"+strings.ToLower(a.Alert), a.Annotations["runbook_url"])
		_, section, found := strings.Cut(doc, "\n#### "+a.Alert+"\n")
		require.True(t, found, "%s has no heading for %s", page, a.Alert)
		section, _, _ = strings.Cut(section, "\n#")
		for _, word := range []string{"**Cause:**", "**Fix:**"} {
			assert.Contains(t, section, word, a.Alert)
		}
		assert.Contains(t, tests, a.Alert, "promtool does not test it")
	}
}

// known are the metrics that there are, with the series that histograms make.
func known() map[string]bool {
	names := map[string]bool{}
	for _, f := range slices.Concat(controlplane.MetricFamilies(), agent.MetricFamilies()) {
		for _, suffix := range []string{"", "_bucket", "_count", "_sum"} {
			names[f.Name+suffix] = true
		}
	}
	return names
}

// metricNames finds names of metrics in PromQL: words that are not function, label or keyword.
var metricNames = regexp.MustCompile(`\b(?:pipeops|controller_runtime|workqueue|rest_client|process|go)_[a-z0-9_]+\b`)

// ofOthers are the dashboards of what Kubernetes, node-exporter, OpenCost and Loki count.
var ofOthers = []string{"apps.json", "cluster.json", "cost.json", logsBoard}

func TestDashboards_MetricsExist(t *testing.T) {
	names, asked := known(), 0
	check := func(where, expr string) {
		found := metricNames.FindAllString(expr, -1)
		assert.NotEmpty(t, found, "%s asks for nothing of ours: %s", where, expr)
		for _, name := range found {
			asked++
			assert.True(t, names[name], "%s asks for %s, which there is not", where, name)
		}
	}
	for _, a := range alerts(t, rules) {
		check(a.Alert, a.Expr)
	}
	files, err := filepath.Glob(filepath.Join(harness.Root(), dashboards))
	require.NoError(t, err)
	require.Len(t, files, 7)
	for _, file := range files {
		if slices.Contains(ofOthers, filepath.Base(file)) {
			continue
		}
		for title, exprs := range panels(t, file) {
			for _, expr := range exprs {
				check(filepath.Base(file)+": "+title, expr)
			}
		}
	}
	assert.Greater(t, asked, 80)
}

// panels are a dashboard's queries by panel.
func panels(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var board struct {
		UID, Title string
		Panels     []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	assert.NotEmpty(t, board.UID)
	ids, all := map[int]bool{}, map[string][]string{}
	for _, p := range board.Panels {
		assert.False(t, ids[p.ID], "%s: panel %d is there twice", file, p.ID)
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, "%s: %s", file, p.Title)
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	return all
}

// variables are those of a dashboard in its queries.
var variables = regexp.MustCompile(`\$\w+`)

// TestDashboards_QueriesValid has promtool parse each, as the expression of a rule.
func TestDashboards_QueriesValid(t *testing.T) {
	tool := promtool(t)
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var all []rule
	files, err := filepath.Glob(filepath.Join(harness.Root(), dashboards))
	require.NoError(t, err)
	for _, file := range files {
		if filepath.Base(file) == logsBoard {
			continue
		}
		for _, exprs := range panels(t, file) {
			for _, expr := range exprs {
				all = append(all, rule{fmt.Sprintf("panel:%d", len(all)), variables.ReplaceAllString(expr, ".*")})
			}
		}
	}
	approves(t, tool, map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": all}}}, "check", "rules")
}

//go:generate go test . -run TestMetrics_Documented -update

// TestMetrics_Documented: the tables in the page are those of the declared metrics.
func TestMetrics_Documented(t *testing.T) {
	doc := read(t, metricsPage)
	for marker, families := range map[string][]metrics.Family{"controlplane": controlplane.MetricFamilies(), "agent": agent.MetricFamilies()} {
		begin := "<!-- metrics: " + marker + " -->\n"
		before, rest, found := strings.Cut(doc, begin)
		require.True(t, found)
		_, after, found := strings.Cut(rest, "<!-- end -->")
		require.True(t, found)
		doc = before + begin + tableOf(families) + "<!-- end -->" + after
	}
	golden.Check(t, filepath.Join(harness.Root(), metricsPage), doc, "go generate ./test/observe")
}

func tableOf(families []metrics.Family) string {
	var b strings.Builder
	b.WriteString("| metric | labels | |\n|---|---|---|\n")
	for _, f := range families {
		if !strings.HasPrefix(f.Name, "pipeops_") {
			continue // others' are told of in words
		}
		labels := make([]string, len(f.Labels))
		for i, l := range f.Labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, strings.Join(labels, ", "), f.Help)
	}
	return b.String()
}
