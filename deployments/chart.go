package deployments

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// chartTemplates is where the chart's templates are, seen from here.
const chartTemplates = "helm/pipeops-agent/templates"

const chartHeader = "{{- /* Made by `go generate ./deployments/...` from deployments/%s. Do not edit. */ -}}\n"

// Chart returns the templates of the agent's chart with the agent's rights. They are the manifest's
// own parts, so that the two cannot differ, with the release's namespace and labels. The other
// templates are written by hand.
func Chart() (map[string][]byte, error) {
	rbac, err := readDocuments("agent/rbac.yaml")
	if err != nil {
		return nil, err
	}
	policy, err := parts.ReadFile("agent/policy.yaml")
	if err != nil {
		return nil, err
	}
	selfUpdate, err := parts.ReadFile(selfUpdatePart)
	if err != nil {
		return nil, err
	}
	crd, err := parts.ReadFile("crds/pipeops.io_apps.yaml")
	if err != nil {
		return nil, err
	}
	rules, err := limitedRules(rbac)
	if err != nil {
		return nil, err
	}
	sources, err := sourcesTemplate()
	if err != nil {
		return nil, err
	}
	templates := map[string]string{
		"sources.yaml":    fmt.Sprintf(chartHeader, sourcesPart) + sources,
		"rbac.yaml":       fmt.Sprintf(chartHeader, "agent/rbac.yaml") + rbacTemplate(rbac),
		"policy.yaml":     fmt.Sprintf(chartHeader, "agent/policy.yaml") + unlessLimited(forRelease(string(policy))),
		"selfupdate.yaml": fmt.Sprintf(chartHeader, selfUpdatePart) + ifSelfUpdate(forRelease(string(selfUpdate))),
		"crd.yaml":        fmt.Sprintf(chartHeader, "crds/pipeops.io_apps.yaml") + crdTemplate(string(crd)),
		"_rules.tpl":      fmt.Sprintf(chartHeader, "agent/rbac.yaml") + rules,
	}
	rights, err := rightsTemplates()
	if err != nil {
		return nil, err
	}
	maps.Copy(templates, rights)
	out := map[string][]byte{}
	for name, text := range templates {
		out[path.Join(chartTemplates, name)] = []byte(text)
	}
	return out, nil
}

func readDocuments(name string) ([]string, error) {
	text, err := parts.ReadFile(name)
	return strings.Split(string(text), "---\n"), err
}

const account = `{{ include "pipeops-agent.serviceAccount" $ }}`

// forRelease puts the release's namespace, labels and ServiceAccount in place of the manifest's.
var forRelease = strings.NewReplacer(
	"  - kind: ServiceAccount\n    name: pipeops-agent\n", "  - kind: ServiceAccount\n    name: "+account+"\n",
	`"system:serviceaccount:pipeops:pipeops-agent"`, `"system:serviceaccount:{{ .Release.Namespace }}:`+account+`"`,
	`s.name == "pipeops-agent"`, `s.name == "`+account+`"`,
	`variables.where != "pipeops"`, `variables.where != "{{ .Release.Namespace }}"`,
	"namespace: pipeops\n", "namespace: {{ .Release.Namespace }}\n",
	`s[?"namespace"].orValue("") == "pipeops"`, `s[?"namespace"].orValue("") == "{{ .Release.Namespace }}"`,
	`request.namespace == "pipeops"`, `request.namespace == "{{ .Release.Namespace }}"`,
	`["default", "pipeops"]`, `["default", "pipeops"{{ if ne .Release.Namespace "pipeops" }}, "{{ .Release.Namespace }}"{{ end }}]`,
	"    app.kubernetes.io/name: pipeops-agent\n", `    {{- include "pipeops-agent.labels" . | nindent 4 }}`+"\n",
).Replace

// unlessLimited leaves out what an agent that is limited to some namespaces does
// not need.
func unlessLimited(text string) string {
	return "{{- if not .Values.agent.namespaces }}\n" + text + "{{- end }}\n"
}

// ifSelfUpdate leaves out what an agent does not need that is updated by others.
func ifSelfUpdate(text string) string {
	return "{{- if .Values.selfUpdate.enabled }}\n" + text + "{{- end }}\n"
}

const serviceAccount = `---
{{ include "pipeops.serviceAccount" (dict "top" . "name" (include "pipeops-agent.serviceAccount" .) "labels" (include "pipeops-agent.labels" .)) }}
`

func rbacTemplate(documents []string) string {
	var out strings.Builder
	for _, document := range documents {
		text := "---\n" + forRelease(document)
		switch {
		case strings.Contains(text, "kind: ServiceAccount\nmetadata:\n"):
			text = serviceAccount
		case strings.Contains(text, "kind: ClusterRole\nmetadata:\n  name: pipeops-agent\n"):
			head, rules, _ := strings.Cut(text, "\nrules:\n")
			text = head + "\nrules:\n{{- if .Values.agent.namespaces }}\n  {{- include \"pipeops-agent.clusterRules\" . | nindent 2 }}\n{{- else }}\n" +
				rules + "{{- end }}\n"
		case strings.Contains(text, "kind: ClusterRole\nmetadata:\n  name: pipeops-agent-namespace\n"):
			text = unlessLimited(text)
		}
		out.WriteString(text)
	}
	return out.String()
}

// crdTemplate makes Helm update the resource with every upgrade, which it does not do for a chart's
// crds/. It also makes Helm keep the resource when the chart is removed: otherwise every App would
// be deleted with it.
func crdTemplate(text string) string {
	text = strings.Replace(text, "\n  annotations:\n", "\n  annotations:\n    helm.sh/resource-policy: keep\n", 1)
	return "{{- if .Values.crd.enabled }}\n" + text + "{{- end }}\n"
}

// limitedRules returns the rights of an agent that is limited to some namespaces: in the whole
// cluster it reads what is in no namespace, everything else is granted in each of its namespaces
// alone.
func limitedRules(documents []string) (string, error) {
	var cluster, namespace []rbacv1.PolicyRule
	for _, document := range documents {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			return "", fmt.Errorf("agent/rbac.yaml: %w", err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			switch {
			case only(rule, "namespaces", "nodes", "customresourcedefinitions", "gatewayclasses"):
				cluster = appendLimited(cluster, rule, "get", "list", "watch")
			case only(rule, "gatewayclasses/status"): // an agent that is limited accepts no classes for all
			case only(rule, "rolebindings", "clusterroles"): // an agent that is limited manages no namespaces
			case only(rule, "resourcequotas", "limitranges", "networkpolicies"): // nor what bounds them
				namespace = appendLimited(namespace, rule, "get")
			default:
				namespace = append(namespace, rule)
			}
		}
	}
	var out bytes.Buffer
	for _, define := range []struct {
		name  string
		rules []rbacv1.PolicyRule
	}{{"clusterRules", cluster}, {"namespaceRules", namespace}} {
		text, err := yaml.Marshal(define.rules)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "{{- define \"pipeops-agent.%s\" -}}\n%s{{- end }}\n", define.name, text)
	}
	return out.String(), nil
}

// only reports whether a rule is about nothing but these resources.
func only(rule rbacv1.PolicyRule, resources ...string) bool {
	return !slices.ContainsFunc(rule.Resources, func(r string) bool { return !slices.Contains(resources, r) })
}

// appendLimited adds what is left of a rule when only these verbs are.
func appendLimited(rules []rbacv1.PolicyRule, rule rbacv1.PolicyRule, verbs ...string) []rbacv1.PolicyRule {
	limited := rule.DeepCopy()
	limited.Verbs = slices.DeleteFunc(limited.Verbs, func(v string) bool { return !slices.Contains(verbs, v) })
	if len(limited.Verbs) == 0 {
		return rules
	}
	return append(rules, *limited)
}
