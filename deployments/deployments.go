// Package deployments contains the manifests of the agent and the control plane, so that tests and
// tools use the same files as users. agent.yaml consists of the parts in agent/ and crds/, and
// service.yaml of these and of service/. The chart templates with the agent's rights consist of the
// same parts.
package deployments

import (
	"bytes"
	"embed"
)

//go:generate go test . -run UpToDate -update

//go:embed agent/*.yaml crds/*.yaml service/*.yaml
var parts embed.FS

const header = `# The PipeOps agent, whole. Needs Kubernetes 1.30 or newer.
#
#   kubectl apply -f agent.yaml
#   kubectl -n pipeops create configmap pipeops-agent \
#     --from-literal=PIPEOPS_CONTROL_PLANE_URL=https://control.example.com:8443 \
#     --from-literal=CLUSTER_NAME=my-cluster
#   kubectl -n pipeops create secret generic pipeops-agent --from-file=AGENT_TOKEN=/dev/stdin
#
# The last one reads the enrolment token from the terminal (end with Ctrl-D), so
# that it gets into no shell history. The pod starts once the config map is there. When the
# agent is registered it removes the token from that Secret.
# A proxy goes into the config map, as HTTPS_PROXY; one that wants a password,
# http://USER:PASSWORD@HOST:PORT, into a Secret, which is read first:
#
#   read -rs proxy
#   printf %s "$proxy" | kubectl -n pipeops create secret generic pipeops-agent-proxy --from-file=HTTPS_PROXY=/dev/stdin
#
# For two replicas, each on its node, set "replicas: 2" below: a number that is set with
# kubectl is set back when this file is applied again.
#
# To remove the agent with its Apps:
#
#   kubectl delete -f agent.yaml
#
# Made by ` + "`go generate ./deployments/...`" + ` from deployments/agent and deployments/crds. Do not edit.
`

const serviceHeader = `# What the PipeOps agent needs in a cluster when it is a service of a machine beside it:
# all of agent.yaml but the pod. docs/cluster-owner/service.md describes the next steps.
# Needs Kubernetes 1.30 or newer.
#
#   kubectl apply -f service.yaml
#
# Made by ` + "`go generate ./deployments/...`" + ` from deployments/agent, crds and service. Do not edit.
`

// Agent returns the agent's manifest: the content of agent.yaml.
func Agent() ([]byte, error) { return join(header, "agent/token.yaml", "agent/deployment.yaml") }

// Service returns the content of service.yaml: the manifest for an agent that is not a pod.
func Service() ([]byte, error) { return join(serviceHeader, "service/token.yaml") }

const selfUpdateHeader = `# What the PipeOps agent needs in addition to agent.yaml where it may update itself to
# releases that the control plane offers (docs/cluster-owner/self-update.md). Apply it to turn that on,
# and set PIPEOPS_SELF_UPDATE=true in the config map; delete it to turn that off.
#
#   kubectl apply --server-side -f self-update.yaml
#
# Made by ` + "`go generate ./deployments/...`" + ` from deployments/agent/selfupdate.yaml. Do not edit.
`

// SelfUpdate returns the content of self-update.yaml: the right to change the agent's own image.
func SelfUpdate() ([]byte, error) {
	part, err := parts.ReadFile(selfUpdatePart)
	return append([]byte(selfUpdateHeader+"---\n"), part...), err
}

const selfUpdatePart = "agent/selfupdate.yaml"

// join puts what every agent needs in its cluster before the last parts.
func join(header string, last ...string) ([]byte, error) {
	out := bytes.NewBufferString(header)
	for _, name := range append([]string{
		"agent/namespaces.yaml", "crds/pipeops.io_apps.yaml", "agent/rbac.yaml", "agent/policy.yaml",
	}, last...) {
		part, err := parts.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(part)
	}
	return out.Bytes(), nil
}
