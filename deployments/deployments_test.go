package deployments_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/test/golden"
)

// made is what makes the committed files.
const made = "go generate ./deployments/..."

func TestManifest_UpToDate(t *testing.T) {
	for file, manifest := range map[string]func() ([]byte, error){
		"agent.yaml": deployments.Agent, "service.yaml": deployments.Service,
		"self-update.yaml": deployments.SelfUpdate, "sources.yaml": deployments.Sources,
	} {
		want, err := manifest()
		require.NoError(t, err)
		golden.Check(t, file, string(want), made)
	}
}

// TestRights_SelfUpdate keeps the optional right for self-update narrow.
func TestRights_SelfUpdate(t *testing.T) {
	granted, err := deployments.GrantedForSelfUpdate()
	require.NoError(t, err)
	assert.Empty(t, granted.Cluster)
	assert.Empty(t, granted.Managed)
	assert.ElementsMatch(t, []deployments.Grant{
		{Verb: "get", Group: "apps", Resource: "deployments", Name: "pipeops-agent"},
		{Verb: "patch", Group: "apps", Resource: "deployments", Name: "pipeops-agent"},
		{Verb: "list", Resource: "pods"},
	}, granted.Own)
}

// TestChart_UpToDate keeps the rights in the chart the same as in the manifest.
func TestChart_UpToDate(t *testing.T) {
	templates, err := deployments.Chart()
	require.NoError(t, err)
	for name, want := range templates {
		golden.Check(t, name, string(want), made)
	}
}

// dashboardsIn are the dashboards that a chart has. A chart has only files of its own folder.
var dashboardsIn = map[string][]string{
	"helm/pipeops-controlplane/dashboards":                        {"controlplane", "gateway"},
	"../internal/components/charts/pipeops-dashboards/dashboards": {"agent", "apps", "cluster", "cost", "logs"},
}

func TestChart_DashboardsUpToDate(t *testing.T) {
	for folder, names := range dashboardsIn {
		for _, name := range names {
			want, err := os.ReadFile("grafana/" + name + ".json")
			require.NoError(t, err)
			golden.Check(t, folder+"/"+name+".json", string(want), made)
		}
	}
}

// TestGranted compares what doctor asks for with the roles.
func TestGranted(t *testing.T) {
	want := 0
	for _, role := range agentRoles(t) {
		if role.Name == "pipeops-agent-token" { // that one may be left out
			continue
		}
		for _, r := range role.Rules {
			want += len(r.APIGroups) * len(r.Resources) * len(r.Verbs) * max(1, len(r.ResourceNames))
		}
	}
	granted, err := deployments.Granted()
	require.NoError(t, err)
	assert.Len(t, slices.Concat(granted.Cluster, granted.Own, granted.Managed), want)
	assert.Contains(t, granted.Cluster, deployments.Grant{Verb: "patch", Group: "pipeops.io", Resource: "apps", Subresource: "status"})
	assert.Contains(t, granted.Own, deployments.Grant{Verb: "get", Resource: "secrets", Name: "pipeops-agent-identity"})
	assert.Equal(t, "get pods/log", deployments.Grant{Verb: "get", Resource: "pods", Subresource: "log"}.String())
}

func objects(t *testing.T, manifest []byte) []unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	var all []unstructured.Unstructured
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// agentObjects are those of the agent's manifest.
func agentObjects(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	manifest, err := deployments.Agent()
	require.NoError(t, err)
	return objects(t, manifest)
}

// rolesOf are the Roles and ClusterRoles of a manifest.
func rolesOf(t *testing.T, manifest []byte) (roles []rbacv1.ClusterRole) {
	t.Helper()
	for _, o := range objects(t, manifest) {
		if o.GetKind() == "ClusterRole" || o.GetKind() == "Role" {
			var role rbacv1.ClusterRole
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
			roles = append(roles, role)
		}
	}
	return roles
}

func agentRoles(t *testing.T) []rbacv1.ClusterRole {
	t.Helper()
	manifest, err := deployments.Agent()
	require.NoError(t, err)
	return rolesOf(t, manifest)
}

// TestRights_Narrow lists what must never be granted.
func TestRights_Narrow(t *testing.T) {
	roles := agentRoles(t)
	assert.Len(t, roles, 4)
	for _, role := range roles {
		for _, rule := range role.Rules {
			hasNoWildcard(t, role.Name, rule)
			assert.NotContains(t, rule.Verbs, "escalate")
			assert.NotContains(t, rule.Verbs, "impersonate")
			if slices.Contains(rule.Verbs, "bind") {
				assert.Equal(t, []string{"pipeops-agent-namespace"}, rule.ResourceNames)
			}
			if role.Kind == "ClusterRole" && role.Name == "pipeops-agent" {
				assert.NotContains(t, rule.Resources, "secrets", "no Secret of the whole cluster")
				assert.NotContains(t, rule.Resources, "pods/exec")
			}
			if role.Name == "pipeops-agent-token" {
				assert.Equal(t, []string{"pipeops-agent"}, rule.ResourceNames, "the one Secret with the enrolment token")
				assert.Equal(t, []string{"get", "patch"}, rule.Verbs)
			}
		}
	}
}

func hasNoWildcard(t *testing.T, role string, rule rbacv1.PolicyRule) {
	t.Helper()
	for _, words := range [][]string{rule.Verbs, rule.Resources, rule.APIGroups} {
		assert.NotContains(t, words, "*", "%s grants a wildcard", role)
	}
}

// TestRights_ManifestsNarrow: even with all of the rights for manifests, the agent cannot get more.
func TestRights_ManifestsNarrow(t *testing.T) {
	roles := rolesOf(t, deployments.ManifestRights())
	assert.Len(t, roles, 3)
	for _, role := range roles {
		for _, rule := range role.Rules {
			hasNoWildcard(t, role.Name, rule)
			verbs := []string{"get", "create", "patch", "delete"}
			if role.Name == "pipeops-agent-grantable" {
				verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
				assert.NotContains(t, rule.APIGroups, "rbac.authorization.k8s.io", "accounts of an application grant nothing")
				assert.Subset(t, verbs, rule.Verbs, "no escalate, bind or impersonate")
			} else {
				assert.Equal(t, verbs, rule.Verbs, "no escalate, bind or impersonate")
			}
			for _, never := range []string{"clusterroles", "clusterrolebindings", "secrets", "namespaces", "nodes", "serviceaccounts/token"} {
				assert.NotContains(t, rule.Resources, never)
			}
			for _, group := range []string{"admissionregistration.k8s.io", "apiregistration.k8s.io", "certificates.k8s.io", "pipeops.io"} {
				assert.NotContains(t, rule.APIGroups, group)
			}
		}
	}
}

// TestManifest_ReplicasOverlap keeps the manifest fit for two replicas and for updates that
// have two pods at a time.
func TestManifest_ReplicasOverlap(t *testing.T) {
	var deployment appsv1.Deployment
	var budget policyv1.PodDisruptionBudget
	for _, o := range agentObjects(t) {
		switch o.GetKind() {
		case "Deployment":
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &deployment))
		case "PodDisruptionBudget":
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &budget))
		}
	}
	assert.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, deployment.Spec.Strategy.Type)
	assert.Equal(t, 0, deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	assert.Equal(t, "kubernetes.io/hostname", deployment.Spec.Template.Spec.TopologySpreadConstraints[0].TopologyKey)
	assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue(), "a node with the only replica can be drained")
	assert.Nil(t, budget.Spec.MinAvailable)
	assert.Equal(t, deployment.Spec.Selector, budget.Spec.Selector)
}
