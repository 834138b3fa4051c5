package deployments

import (
	"bytes"
	"fmt"
	"strings"
)

const sourcesHeader = `# What the PipeOps agent needs in addition to agent.yaml where Runners may have it follow
# Git repositories (docs/deployer/git.md). Apply it to turn that on; delete it to turn that off, with
# which all sources go. What they have brought stays.
#
#   kubectl apply --server-side -f sources.yaml
#
# Made by ` + "`go generate ./deployments/...`" + ` from deployments/agent/sources.yaml and deployments/crds. Do not edit.
`

const (
	sourcesPart = "agent/sources.yaml"
	sourcesCRD  = "crds/pipeops.io_sources.yaml"
)

// Sources returns the content of sources.yaml: the resource of Git sources, and the right to it.
func Sources() ([]byte, error) {
	out := bytes.NewBufferString(sourcesHeader)
	for _, name := range []string{sourcesCRD, sourcesPart} {
		part, err := parts.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(part)
	}
	return out.Bytes(), nil
}

// sourcesTemplate is the same in the chart. An agent that is limited to some namespaces has the
// rights only in those.
func sourcesTemplate() (string, error) {
	crd, err := parts.ReadFile(sourcesCRD)
	if err != nil {
		return "", err
	}
	rights, err := parts.ReadFile(sourcesPart)
	if err != nil {
		return "", err
	}
	role, _, found := strings.Cut(string(rights), "---\n")
	if !found {
		return "", fmt.Errorf("%s: has no second document", sourcesPart)
	}
	kept := strings.Replace(string(crd), "\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n", 1)
	bindings := `---
{{- range .Values.agent.namespaces }}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: pipeops-agent-sources
  namespace: {{ . }}
  labels:
    {{- include "pipeops-agent.labels" $ | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: pipeops-agent-sources
subjects:
  - kind: ServiceAccount
    name: ` + account + `
    namespace: {{ $.Release.Namespace }}
---
{{- else }}
` + strings.TrimPrefix(forRelease(string(rights)), forRelease(role)+"---\n") + "{{- end }}\n"
	return "{{- if .Values.sources.enabled }}\n" + kept + "---\n" + forRelease(role) + bindings + "{{- end }}\n", nil
}
