package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/test/charts"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// ofComponents are what the chart makes to install components.
var ofComponents = []string{
	"ServiceAccount pipeops-components", "ClusterRoleBinding pipeops-components:pipeops", "ConfigMap pipeops-components", "Job pipeops-components",
}

// TestChart_ComponentRightsEnd: the Job and its rights are hooks that Helm deletes, whether the Job
// succeeds or fails.
func TestChart_ComponentRightsEnd(t *testing.T) {
	with := render(t, agentChart, "components.yaml")
	without := render(t, agentChart, "components.yaml", "--set", "agent.autoInstallComponents=false")
	for _, key := range ofComponents {
		require.Contains(t, with, key)
		assert.NotContains(t, without, key)
		notes := with[key].GetAnnotations()
		assert.Equal(t, "post-install,post-upgrade", notes["helm.sh/hook"], key)
		assert.Equal(t, "before-hook-creation,hook-succeeded,hook-failed", notes["helm.sh/hook-delete-policy"], key)
		delete(with, key)
	}
	for key, o := range with {
		assert.Equal(t, without[key], o, "%s: the standing agent's objects are the same, and its rights", key)
	}
	assert.Len(t, with, len(without))
}

// TestChart_ComponentJob: the Job has the agent's image, proxy and CA.
func TestChart_ComponentJob(t *testing.T) {
	all := render(t, agentChart, "components.yaml")
	job := all["Job pipeops-components"]
	assert.Equal(t, []any{"component", "install", "--set", "metrics-server,ingress,cert-manager", "--filename", "/etc/pipeops/components/settings.yaml"},
		container(t, job)["args"])
	assert.Equal(t, container(t, all["Deployment pipeops-agent"])["image"], container(t, job)["image"])
	settings, err := components.ReadSettings([]byte(field[string](t, all["ConfigMap pipeops-components"], "data", "settings.yaml")))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"args": []any{"--kubelet-insecure-tls"}}, settings.Components["metrics-server"].Values["metrics-server"])

	everything := render(t, agentChart, "everything.yaml")
	settings, err = components.ReadSettings([]byte(field[string](t, everything["ConfigMap pipeops-components"], "data", "settings.yaml")))
	require.NoError(t, err)
	assert.Equal(t, "https://charts.example.com", settings.Mirror)
	env, err := json.Marshal(container(t, everything["Job pipeops-components"])["env"])
	require.NoError(t, err)
	assert.Contains(t, string(env), `"SSL_CERT_DIR"`)
	assert.Contains(t, string(env), `{"key":"HTTPS_PROXY","name":"proxy","optional":false}`)
	_, err = components.ReadSettings([]byte(field[string](t, render(t, agentChart, "single.yaml", "--set", "agent.autoInstallComponents=true")["ConfigMap pipeops-components"], "data", "settings.yaml")))
	require.NoError(t, err, "without settings")
}

// TestChart_ListsComponents: the schema lists all components.
func TestChart_ListsComponents(t *testing.T) {
	args := []string{"--set", "agent.components.set=" + strings.Join(components.Names(), `\,`)}
	for _, name := range components.Names() {
		args = append(args, "--set", "agent.components.settings.components."+name+".mode=auto")
	}
	assert.Contains(t, render(t, agentChart, "components.yaml", args...), "Job pipeops-components")
}

// serveCharts serves the real charts where the cluster's pods reach them.
func serveCharts(t *testing.T, host string) (address string) {
	t.Helper()
	directory := charts.Directory(t)
	var index strings.Builder
	index.WriteString("apiVersion: v1\nentries:\n")
	for _, c := range components.All() {
		for _, chart := range c.Charts {
			if !chart.IsOwn() {
				fmt.Fprintf(&index, "  %s:\n  - version: %s\n    urls: [%s-%s.tgz]\n", chart.Name, chart.Version, chart.Name, chart.Version)
			}
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/index.yaml" {
			_, _ = io.WriteString(w, index.String())
			return
		}
		http.ServeFile(w, r, filepath.Join(directory, filepath.Base(r.URL.Path)))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// TestChart_InstallsComponents: when Helm returns, components are installed and the rights gone.
func TestChart_InstallsComponents(t *testing.T) {
	suite.Release(t, "further lives of the charts")
	sys := system(t)
	charts := serveCharts(t, sys.HostIP())
	t.Cleanup(func() {
		out, err := runShell(context.WithoutCancel(t.Context()), "helm uninstall vertical-pod-autoscaler -n vpa --ignore-not-found; "+
			"kubectl delete namespace vpa --ignore-not-found --wait=false")
		assert.NoError(t, err, out)
		removeAgent(t, "equipped")
	})
	const agentRights = "kubectl auth can-i --list --as system:serviceaccount:equipped:pipeops-agent | sort"
	install := func(more string) string {
		return in("equipped", documented(t, "install", exampleURL, sys.APIURL(), "--wait", "--wait --timeout 3m"+more))
	}
	shell(t, install(""))
	before := shell(t, agentRights)
	said := shell(t, in("equipped", documented(t, "upgrade", "--reset-then-reuse-values", "--reset-then-reuse-values --timeout 5m"+
		" --set agent.autoInstallComponents=true,agent.components.set=vpa,agent.components.settings.mirror=http://"+charts+
		",agent.components.settings.httpHosts={"+charts+"}")))
	assert.Contains(t, said, "The components that the cluster lacked are installed (vpa)")
	assert.Contains(t, shell(t, "helm list -n vpa"), "vertical-pod-autoscaler")
	assert.Contains(t, shell(t, "kubectl api-resources --api-group autoscaling.k8s.io -o name"), "verticalpodautoscalers")
	left := shell(t, "kubectl -n equipped get serviceaccounts,configmaps,jobs -o name; kubectl get clusterrolebindings -o name")
	assert.NotContains(t, left, "pipeops-components")
	assert.Equal(t, before, shell(t, agentRights))

	out, err := runShell(t.Context(), in("equipped", documented(t, "upgrade", "--reset-then-reuse-values", "--reset-then-reuse-values --timeout 5m"+
		" --set agent.components.set=cert-manager,agent.components.settings.mirror=http://"+charts+"/nothing")))
	require.Error(t, err, out)
	assert.Contains(t, out, "component cert-manager", "Helm shows the log of the Job that failed")
	left = shell(t, "kubectl -n equipped get serviceaccounts,configmaps,jobs -o name; kubectl get clusterrolebindings -o name")
	assert.NotContains(t, left, "pipeops-components")
}
