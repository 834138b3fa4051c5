package operatorapi

import (
	"cmp"
	"regexp"
	"strings"

	"al.essio.dev/pkg/shellescape"
)

// releases is where versions are published.
const releases = "https://github.com/pipeops/pipeops-vm-agent/releases/"

// Installer is where the newest install.sh is.
const Installer = releases + "latest/download/install.sh"

// published is the form of versions that are published.
var published = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// InstallLines are the command lines of one way to install an agent.
type InstallLines struct{ Title, Text string }

// InstallLines returns the ways to install an agent that registers with the token, as a cluster of
// that name, for a control plane of that version.
func (t NewToken) InstallLines(cluster, version string) []InstallLines {
	files, chart := releases+"latest/download/", "deployments/helm/pipeops-agent"
	if published.MatchString(version) {
		files = releases + "download/" + version + "/"
		chart = files + "pipeops-agent-" + strings.TrimPrefix(version, "v") + ".tgz"
	}
	cluster = shellescape.Quote(shellescape.StripUnsafe(cluster))
	address := "https://" + cmp.Or(t.Address, "CONTROL-PLANE")
	secret := "printf %s " + t.Text + " | kubectl -n pipeops create secret generic pipeops-agent --from-file=AGENT_TOKEN=/dev/stdin"
	if t.Kubernetes != nil {
		return t.publicLines(chart, cluster, address)
	}
	return []InstallLines{
		{"Script, on a Linux machine as root", "curl -fsSL " + Installer + " | AGENT_TOKEN=" + t.Text + " CLUSTER_NAME=" + cluster + " bash"},
		{"Helm, with a kubeconfig of the cluster", strings.Join([]string{
			"kubectl create namespace pipeops",
			"kubectl label namespace pipeops pod-security.kubernetes.io/enforce=restricted",
			secret,
			"helm install pipeops-agent " + chart + " --namespace pipeops --wait \\",
			"  --set agent.controlPlaneUrl=" + address + " --set agent.clusterName=" + cluster,
		}, "\n")},
		{"Manifests, with a kubeconfig of the cluster", strings.Join([]string{
			"kubectl apply -f " + files + "agent.yaml",
			secret,
			"kubectl -n pipeops create configmap pipeops-agent --from-literal=PIPEOPS_CONTROL_PLANE_URL=" + address + " --from-literal=CLUSTER_NAME=" + cluster,
		}, "\n")},
	}
}

// publicLines returns the way to install an agent that registers without a secret: in its cluster,
// whose keys exist already.
func (t NewToken) publicLines(chart, cluster, address string) []InstallLines {
	audience := strings.ReplaceAll(t.Kubernetes.Audience, ",", `\,`)
	return []InstallLines{{"Helm, with a kubeconfig of the cluster", strings.Join([]string{
		"kubectl create namespace pipeops",
		"kubectl label namespace pipeops pod-security.kubernetes.io/enforce=restricted",
		"helm install pipeops-agent " + chart + " --namespace pipeops --wait \\",
		"  --set agent.controlPlaneUrl=" + address + " --set agent.clusterName=" + cluster + " --set agent.token=" + t.Text + " \\",
		"  --set serviceAccountToken.enabled=true --set-string " + shellescape.Quote("serviceAccountToken.audience="+shellescape.StripUnsafe(audience)),
	}, "\n")}}
}
