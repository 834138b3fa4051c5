package deployments

import (
	"fmt"
	"strings"
)

// rightsTemplates returns the manifests of rights that are granted apart, each as a template that
// its value turns on. That for builds is none of them: Helm would mark its namespace as its own,
// and the agent manages those alone that are marked as the agent's.
func rightsTemplates() (map[string]string, error) {
	manifests, err := manifestRightsTemplate()
	if err != nil {
		return nil, err
	}
	users, err := kubernetesAPITemplate()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"node-rights.yaml":           fmt.Sprintf(chartHeader, "node-rights.yaml") + when("nodes.enabled", forRelease(string(nodeRights))),
		"manifest-rights.yaml":       fmt.Sprintf(chartHeader, "manifest-rights.yaml") + manifests,
		"kubernetes-api-rights.yaml": fmt.Sprintf(chartHeader, "kubernetes-api-rights.yaml") + users,
	}, nil
}

func when(value, text string) string {
	return "{{- if .Values." + value + " }}\n" + text + "{{- end }}\n"
}

// manifestRightsTemplate binds what holds in one namespace at a time in those of the values.
func manifestRightsTemplate() (string, error) {
	documents := strings.Split(string(manifestRights), "---\n")
	const inNamespace = "\n  namespace: production\n"
	if len(documents) != 6 || !strings.Contains(documents[1], inNamespace) || !strings.Contains(documents[3], inNamespace) {
		return "", fmt.Errorf("manifest-rights.yaml: has other documents than two roles with their bindings in a namespace, and one for the cluster")
	}
	inEach := strings.NewReplacer(inNamespace, "\n  namespace: {{ . }}\n", `" . |`, `" $ |`, "{{ .Release", "{{ $.Release")
	binding := inEach.Replace(forRelease(documents[1]))
	grantable := inEach.Replace(forRelease(documents[3]))
	return when("manifests.enabled", forRelease(documents[0])+"---\n"+forRelease(documents[2])+
		"{{- range .Values.manifests.namespaces | default .Values.agent.namespaces }}\n---\n"+binding+"---\n"+grantable+"{{- end }}\n"+
		"{{- if .Values.manifests.cluster }}\n---\n"+forRelease(documents[4])+"---\n"+forRelease(documents[5])+"{{- end }}\n"), nil
}

// kubernetesAPITemplate takes the names of users and groups from the values.
func kubernetesAPITemplate() (string, error) {
	text := string(kubernetesAPIRights)
	names := [][2]string{
		{"resourceNames: [pipeops-runner]\n", "resourceNames: {{ .Values.kubernetesApi.users | toJson }}\n"},
		{"resourceNames: [pipeops-runners]\n", "resourceNames: {{ .Values.kubernetesApi.groups | toJson }}\n"},
		{"  - kind: Group\n    apiGroup: rbac.authorization.k8s.io\n    name: pipeops-runners\n",
			"  {{- range .Values.kubernetesApi.groups }}\n  - kind: Group\n    apiGroup: rbac.authorization.k8s.io\n    name: {{ . | quote }}\n  {{- end }}\n"},
	}
	for _, n := range names {
		if !strings.Contains(text, n[0]) {
			return "", fmt.Errorf("kubernetes-api-rights.yaml: has no %q", n[0])
		}
		text = strings.Replace(text, n[0], n[1], 1)
	}
	rights, view, found := strings.Cut(text, "---\n# What the group may do")
	if !found {
		return "", fmt.Errorf("kubernetes-api-rights.yaml: has no last document about the group")
	}
	return when("kubernetesApi.enabled", forRelease(rights)+
		"{{- if .Values.kubernetesApi.view }}\n---\n# What the group may do"+forRelease(view)+"{{- end }}\n"), nil
}
