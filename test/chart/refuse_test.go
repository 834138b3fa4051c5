package chart

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChart_Lint(t *testing.T) {
	for _, chart := range []string{agentChart, controlChart} {
		for _, file := range valuesFiles(t, chart) {
			t.Run(filepath.Base(chart)+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				helm(t, "lint", "--strict", chart, "--values", file)
			})
		}
	}
}

// TestChart_RefusesWrongValues has each wrong value refused by its name.
func TestChart_RefusesWrongValues(t *testing.T) {
	for _, c := range []struct{ set, says string }{
		{"agent.controlPlaneUrl=", "/agent/controlPlaneUrl"},
		{"agent.controlPlaneUrl=http://cp.example.com", "/agent/controlPlaneUrl"},
		{"agent.controlPlaneUrl=https://me:secret@cp.example.com", "/agent/controlPlaneUrl"},
		{"agent.clusterName=Prod_1", "/agent/clusterName"},
		{"agent.clusterName=null", "clusterName"},
		{"agent.logLevel=loud", "/agent/logLevel"},
		{"agent.existingSecret=No Secret", "/agent/existingSecret"},
		{"agent.token=two words", "/agent/token"},
		{"agent.namespaces=shop", "/agent/namespaces"},
		{"agent.namespaces={Shop}", "/agent/namespaces/0"},
		{"agent.namespaces={shop,shop}", "/agent/namespaces"},
		{"agent.namespaces={kube-system}", "agent.namespaces: kube-system belongs to Kubernetes"},
		{"agent.namespaces={pipeops}", "agent.namespaces: pipeops belongs to Kubernetes or to the agent"},
		{"nodes.enabled=true,agent.namespaces={shop}", "nodes.enabled, agent.namespaces: both are set"},
		{"nodes.enabled=perhaps", "/nodes/enabled"},
		{"manifests.enabled=true", "manifests.namespaces: none is named"},
		{"manifests.enabled=true,manifests.namespaces={kube-system}", "manifests.namespaces: kube-system belongs to Kubernetes"},
		{"manifests.enabled=true,manifests.namespaces={other},agent.namespaces={shop}", "manifests.namespaces: other is not among agent.namespaces"},
		{"manifests.enabled=true,manifests.cluster=true,agent.namespaces={shop}", "manifests.cluster, agent.namespaces: both are set"},
		{"selfUpdate.signatures=0", "/selfUpdate/signatures"},
		{"selfUpdate.signatures=2,selfUpdate.keys={RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2}", "selfUpdate.signatures: 2 are more than the 1 keys"},
		{"kubernetesApi.users={}", "/kubernetesApi/users"},
		{"kubernetesApi.groups={system:masters}", "/kubernetesApi/groups/0"},
		{"kubernetesApi.users={*}", "/kubernetesApi/users/0"},
		{"networkPolicy.egress.networks={cp.example.com}", "/networkPolicy/egress/networks/0"},
		{"networkPolicy.egress.ports={https}", "/networkPolicy/egress/ports/0"},
		{"networkPolicy.egress.ports={65536}", "/networkPolicy/egress/ports/0"},
		{"agent.enableIngressSync=yes please", "/agent/enableIngressSync"},
		{"agent.fetchAddresses=127.0.0.0/8", "/agent/fetchAddresses"},
		{"agent.fetchAddresses={localhost}", "/agent/fetchAddresses/0"},
		{"agent.fetchAddresses={127.0.0.1}", "/agent/fetchAddresses/0"},
		{"agent.autoInstallComponents=yes please", "/agent/autoInstallComponents"},
		{"agent.components.set=everything", "/agent/components/set"},
		{"agent.components.set=ingress\\,nginx", "/agent/components/set"},
		{"agent.components.settings.components.nginx.mode=auto", "/agent/components/settings/components"},
		{"agent.components.settings.components.ingress.mode=perhaps", "/agent/components/settings/components/ingress/mode"},
		{"agent.components.settings.mirror=charts.example.com", "/agent/components/settings/mirror"},
		{"components.ingress.install=auto", "'components'"},
		{"agent.token=a,agent.existingSecret=b", "agent.token, agent.existingSecret: both are set"},
		{"agent.clustername=typo", "'clustername'"},
		{"replica=2", "'replica'"},
		{"replicaCount=0", "/replicaCount"},
		{"replicaCount=many", "/replicaCount"},
		{"image.repository=Not A Name", "/image/repository"},
		{"image.tag=a b", "/image/tag"},
		{"image.digest=sha256:short", "/image/digest"},
		{"image.pullPolicy=Sometimes", "/image/pullPolicy"},
		{"imagePullSecrets[0].nome=registry", "/imagePullSecrets/0"},
		{"proxy.https=proxy.example.com:3128", "/proxy/https"},
		{"proxy.https=http://me:secret@proxy.example.com", "/proxy/https"},
		{"proxy.noProxy=example.com", "/proxy/noProxy"},
		{"proxy.https=http://proxy.example.com,proxy.existingSecret=proxy", "proxy.https, proxy.existingSecret: both are set"},
		{"customCA.pem=certificate", "/customCA/pem"},
		{"customCA.key=a/b", "/customCA/key"},
		{"customCA.pem=-----BEGIN CERTIFICATE-----,customCA.existingConfigMap=ca", "customCA.pem, customCA.existingConfigMap: both are set"},
		{"podDisruptionBudget.enabled=maybe", "/podDisruptionBudget/enabled"},
		{"podDisruptionBudget.maxUnavailable=0", "/podDisruptionBudget/maxUnavailable"},
		{"networkPolicy=false", "/networkPolicy"},
		{"crd.install=true", "'install'"},
		{"goMemLimit=96M", "/goMemLimit"},
		{`podLabels.app\.kubernetes\.io/name=other`, "/podLabels"},
		{"priorityClassName=Not One", "/priorityClassName"},
	} {
		refuses(t, agentChart, "single.yaml", c.set, c.says)
	}
}

// refuses renders a chart with one wrong value.
func refuses(t *testing.T, chart, values, set, says string) {
	t.Helper()
	t.Run(set, func(t *testing.T) {
		t.Parallel()
		_, err := tryHelm("template", "x", chart, "--namespace", "pipeops", "--values", filepath.Join(chart, "ci", values), "--set", set)
		require.ErrorContains(t, err, says)
	})
}
