package denylist_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}

// binding is a RoleBinding in namespace production.
func binding(role, subject, namespace string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: production}, roleRef: {kind: " + role +
		", name: a}, subjects: [{kind: " + subject + ", name: a, namespace: '" + namespace + "'}]}"
}

func roleOf(groups, resources, verbs string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: " + groups +
		", resources: " + resources + ", verbs: " + verbs + "}]}"
}

func clusterRole(rules string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [" + rules + "]}"
}

// clusterBinding is a ClusterRoleBinding of a release in namespace production.
func clusterBinding(subject, namespace string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a, namespace: production}, roleRef: {kind: ClusterRole, name: a}, " +
		"subjects: [{kind: " + subject + ", name: a, namespace: '" + namespace + "'}]}"
}

// TestCheck returns the reason for each object that cannot be applied through the agent.
func TestCheck(t *testing.T) {
	agent := denylist.Agent{Namespace: "pipeops"}
	for text, says := range map[string]string{
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: pipeops-agent}}":                                                                    "keeps for its own rights",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: 'system:node'}}":                                                                    "keeps for its own rights",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: {kind: ClusterRole, name: pipeops-agent-nodes}}":                       "keeps for its own rights",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, subjects: [{kind: ServiceAccount, name: x, namespace: pipeops}]}":               "rights to the agent itself",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, subjects: [{kind: User, name: 'system:serviceaccount:pipeops:pipeops-agent'}]}": "rights to the agent itself",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, subjects: [{kind: Group, name: 'system:serviceaccounts'}]}":                     "rights to the agent itself",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, subjects: [{kind: Group, name: 'system:serviceaccounts:pipeops'}]}":             "rights to the agent itself",
		binding("Role", "ServiceAccount", "staging"): "in namespace \"production\", and the subject ServiceAccount a in \"staging\"",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: pipeops}, subjects: [{kind: ServiceAccount, name: x}]}": "rights to the agent itself",
		binding("Role", "User", ""):                                                                                                       "binds ServiceAccounts alone, and a subject is User a",
		binding("Role", "Group", ""):                                                                                                      "binds ServiceAccounts alone, and a subject is Group a",
		binding("ClusterRole", "ServiceAccount", "production"):                                                                            "binds a Role of its namespace, and roleRef names ClusterRole a",
		roleOf("[rbac.authorization.k8s.io]", "[rolebindings]", "[create]"):                                                               "grants no \"rbac.authorization.k8s.io\" among its apiGroups",
		roleOf("[pipeops.io]", "[apps]", "[get]"):                                                                                         "grants no \"pipeops.io\"",
		roleOf("['*']", "[apps]", "[get]"):                                                                                                "grants no \"*\"",
		roleOf("['']", "['pods/*']", "[get]"):                                                                                             "grants no \"pods/*\"",
		roleOf("['']", "[pods]", "['*']"):                                                                                                 "grants no \"*\" among its verbs",
		roleOf("['']", "[pods/exec]", "[create]"):                                                                                         "grants no \"pods/exec\"",
		roleOf("['']", "[serviceaccounts]", "[impersonate]"):                                                                              "grants no \"impersonate\"",
		clusterRole("{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [bind]}"):                                 "does not hold the verb bind",
		clusterRole("{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [create]}"):                                      "writing objects of the group rbac.authorization.k8s.io",
		clusterRole("{apiGroups: ['*'], resources: ['*'], verbs: ['*']}"):                                                                 "writing objects of the group *",
		clusterRole("{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}"):                                             "writing serviceaccounts/token",
		clusterRole("{apiGroups: [''], resources: ['*'], verbs: [create]}"):                                                               "writing *",
		clusterRole("{apiGroups: ['', apps], resources: [pods, serviceaccounts], verbs: ['*']}"):                                          "all verbs on serviceaccounts",
		clusterRole("{apiGroups: [authentication.k8s.io], resources: [userextras], verbs: ['*']}"):                                        "all verbs on authentication.k8s.io",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, aggregationRule: {clusterRoleSelectors: []}}": "no aggregationRule",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a, labels: {rbac.authorization.k8s.io/aggregate-to-view: 'true'}}}": "no label rbac.authorization.k8s.io/aggregate-to-view",
		clusterRole("{apiGroups: [''], resources: [namespaces], verbs: [get, delete]}"):                                                                     "writing namespaces",
		clusterBinding("Group", ""):                 "binds ServiceAccounts alone, and a subject is Group a",
		clusterBinding("ServiceAccount", "staging"): "the release is in namespace \"production\", and the subject ServiceAccount a in \"staging\"",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: a}}":           "through admission",
		"{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.example.com}}":                      "responds for it",
		"{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: a}}":                       "is an identity",
		"{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: a}}":                                  "is an identity",
		"{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: a}}":                   "is an identity",
		"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {externalIPs: [192.0.2.1]}}":                           "CVE-2020-8554",
		"{apiVersion: pipeops.io/v1alpha1, kind: App, metadata: {name: a}}":                                                "agent's own",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: apps.pipeops.io}}":         "permissions of the agent itself",
		"{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}":                                                 "belongs to Kubernetes",
		"{apiVersion: v1, kind: Namespace, metadata: {name: pipeops}}":                                                     "the agent itself",
		"{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {pod-security.kubernetes.io/enforce: privileged}}}": "pod security",
		"{apiVersion: v1, kind: Node, metadata: {name: a}}":                                                                "not a manifest of an application",
		"{apiVersion: v1, kind: Event, metadata: {name: a}}":                                                               "not a manifest of an application",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {app.kubernetes.io/managed-by: pipeops}}}":          "a mark of the agent's",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {pipeops.io/set: production/other}}}":          "a mark of the agent's",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {x.pipeops.io/y: z}}}":                              "a mark of the agent's",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: null, x.pipeops.io/y: z}}}":                     "a mark of the agent's",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: pipeops-set-a}}":                                               "inventories of sets",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: pipeops-release-a}}":                                           "locks of releases",
		"{apiVersion: v1, kind: Secret, metadata: {name: sh.helm.release.v1.a.v1}}":                                        "in which Helm keeps releases",
		"{apiVersion: v1, kind: Secret, metadata: {name: pipeops-agent-identity}}":                                         "the agent keeps",
	} {
		err := agent.Check(parse(t, text))
		refused := &problem.Error{}
		require.ErrorAs(t, err, &refused, text)
		assert.Equal(t, problem.Forbidden, refused.Code)
		assert.Contains(t, refused.Detail, says, text)
		assert.NotEmpty(t, refused.Fix)
	}
	for _, text := range []string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {app.kubernetes.io/managed-by: Helm}}}",
		"{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: pipeops-set-a}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: a}}",
		binding("Role", "ServiceAccount", ""),           // its own namespace
		binding("Role", "ServiceAccount", "production"), // that the cluster takes it: internal/manifests/TestSet_RoleWithBinding
		clusterBinding("ServiceAccount", "production"),
		clusterRole("{apiGroups: [''], resources: [nodes, secrets, pods/exec], verbs: [get, list, watch, create]}, {nonResourceURLs: [/metrics], verbs: [get]}"),
		clusterRole("{apiGroups: [monitoring.coreos.com], resources: ['*'], verbs: ['*']}, {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}"),
		clusterRole("{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}"),
		roleOf("['', coordination.k8s.io]", "[configmaps, leases]", "[get, list, watch, create]"),
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: apps.example.com}}",
	} {
		assert.NoError(t, agent.Check(parse(t, text)), text)
	}
}

// TestCheck_NestedMarks: Kubernetes copies the metadata of templates to what it makes of them.
func TestCheck_NestedMarks(t *testing.T) {
	const marked = "metadata: {labels: {app.kubernetes.io/managed-by: pipeops, pipeops.io/build: a}}"
	const claim = "{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {" + marked + "}}}]}"
	for what, object := range map[string]string{
		"pods":                 "apiVersion: apps/v1, kind: Deployment, spec: {template: {" + marked + "}}",
		"Jobs of a CronJob":    "apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {" + marked + "}}",
		"pods of a CronJob":    "apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {" + marked + "}}}}",
		"volumes":              "apiVersion: apps/v1, kind: StatefulSet, spec: {volumeClaimTemplates: [{" + marked + "}]}",
		"a pod's own volumes":  "apiVersion: v1, kind: Pod, spec: " + claim,
		"a pod's, of a Job":    "apiVersion: batch/v1, kind: Job, spec: {template: {spec: " + claim + "}}",
		"claims of devices":    "apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, spec: {" + marked + "}",
		"what others make":     "apiVersion: argoproj.io/v1alpha1, kind: Rollout, spec: {template: {" + marked + "}}",
		"a null beside a mark": "apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {metadata: {labels: {a: null, pipeops.io/build: a}}}}",
	} {
		err := denylist.Agent{Namespace: "pipeops"}.Check(parse(t, "{metadata: {name: a}, "+object+"}"))
		assert.ErrorContains(t, err, "a mark of the agent's", what)
	}
}

// TestCheckRemoval allows the removal of some objects that cannot be created.
func TestCheckRemoval(t *testing.T) {
	agent := denylist.Agent{Namespace: "pipeops"}
	for text, says := range map[string]string{
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: apps.pipeops.io}}": "permissions of the agent itself",
		"{apiVersion: v1, kind: Namespace, metadata: {name: a}}":                                                   "goes with it",
		"{apiVersion: v1, kind: Node, metadata: {name: a}}":                                                        "not a manifest of an application",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: pipeops-set-a}}":                                       "keeps for its own",
		"{apiVersion: v1, kind: Secret, metadata: {name: pipeops-agent-identity}}":                                 "keeps for its own",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: pipeops-agent}}":           "keeps for its own",
	} {
		refused := &problem.Error{}
		require.ErrorAs(t, agent.CheckRemoval(parse(t, text)), &refused, text)
		assert.Equal(t, problem.Forbidden, refused.Code)
		assert.Contains(t, refused.Detail, says, text)
		assert.NotEmpty(t, refused.Fix)
	}
	for _, text := range []string{
		"{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: a}}",
		"{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.example.com}}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, subjects: [{kind: ServiceAccount, name: x, namespace: pipeops}]}",
		"{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: a}}",
	} {
		require.Error(t, agent.Check(parse(t, text)), text)
		assert.NoError(t, agent.CheckRemoval(parse(t, text)), text)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, subjects: [1, {kind: 2}]}")
	f.Add("{apiVersion: [], kind: {}, metadata: {labels: 1, annotations: [a]}}")
	f.Fuzz(func(_ *testing.T, text string) {
		u := &unstructured.Unstructured{}
		if yaml.Unmarshal([]byte(text), &u.Object) == nil && u.Object != nil {
			_ = denylist.Agent{Namespace: "pipeops"}.Check(u)
			_ = denylist.Agent{Namespace: "pipeops"}.CheckRemoval(u)
		}
	})
}
