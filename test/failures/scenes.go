package failures

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// Scene is the state of the cluster in which a failure occurs.
type Scene struct {
	Name string
	// Alone reports that nothing else may run meanwhile, because the failure is the node's.
	Alone bool
	// Prepare makes it, in one namespace, until the test ends.
	Prepare func(t *testing.T, env *kubetest.Env, namespace string)
}

// What is in the namespaces of each scene, and in the cluster.
const (
	wrongLogin       = "wrong-login"
	unboundClaim     = "unbound"
	classAtOnce      = "nowhere-at-once"
	classForConsumer = "nowhere-for-consumer"
)

// Furnish makes in a namespace what failures refer to that need no scene.
func Furnish(t *testing.T, env *kubetest.Env, namespace string) {
	t.Helper()
	login, err := json.Marshal(map[string]any{"auths": map[string]any{
		"apps.test": map[string]string{"username": cluster.PullUser, "password": "not " + cluster.PullPassword},
	}})
	require.NoError(t, err)
	for _, o := range []client.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wrongLogin}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: login},
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: unboundClaim},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(""),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	} {
		require.NoError(t, env.Client.Create(t.Context(), o))
	}
}

// Classes creates storage classes without a provisioner, until the test ends.
func Classes(t *testing.T, env *kubetest.Env) {
	t.Helper()
	for name, mode := range map[string]storagev1.VolumeBindingMode{
		classAtOnce: storagev1.VolumeBindingImmediate, classForConsumer: storagev1.VolumeBindingWaitForFirstConsumer,
	} {
		create(t, env, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "nowhere.example.com", VolumeBindingMode: new(mode),
		})
	}
}

func create(t *testing.T, env *kubetest.Env, o client.Object) {
	t.Helper()
	require.NoError(t, env.Client.Create(t.Context(), o))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), o))) })
}

var (
	noPods   = quotaOf("no pods", corev1.ResourcePods)
	noCPU    = quotaOf("no CPU", corev1.ResourceRequestsCPU)
	noMemory = quotaOf("no memory", corev1.ResourceRequestsMemory)

	restricted = &Scene{Name: "restricted pods", Prepare: func(t *testing.T, env *kubetest.Env, ns string) {
		kubectl(t, env, "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted")
	}}
	smallPods = &Scene{Name: "small pods", Prepare: func(t *testing.T, env *kubetest.Env, ns string) {
		require.NoError(t, env.Client.Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "small"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
			}}},
		}))
	}}

	podsWebhook      = &Scene{Name: "a webhook of pods is down", Prepare: admission(webhookDown, "''", "pods")}
	podsPolicy       = &Scene{Name: "a policy denies pods", Prepare: admission(policyDenies, "''", "pods")}
	workloadsWebhook = &Scene{Name: "a webhook of Deployments is down", Prepare: admission(webhookDown, "apps", "deployments")}
	workloadsPolicy  = &Scene{Name: "a policy denies Deployments", Prepare: admission(policyDenies, "apps", "deployments")}

	taintedNode = &Scene{Name: "a tainted node", Alone: true, Prepare: func(t *testing.T, env *kubetest.Env, _ string) {
		kubectl(t, env, "taint", "nodes", "--overwrite", env.Cluster.NodeName(), "dedicated=gpu:NoSchedule")
		t.Cleanup(func() {
			_, _ = env.Cluster.Kubectl(context.Background(), "taint", "nodes", env.Cluster.NodeName(), "dedicated-")
		})
	}}
	cordonedNode = &Scene{Name: "a cordoned node", Alone: true, Prepare: func(t *testing.T, env *kubetest.Env, _ string) {
		kubectl(t, env, "cordon", env.Cluster.NodeName())
		t.Cleanup(func() { _, _ = env.Cluster.Kubectl(context.Background(), "uncordon", env.Cluster.NodeName()) })
	}}
)

// device is an extended resource of the node in the scene oneDevice.
const device = "example.com/fpga"

// oneDevice has the node report a single device, as a device plugin would
// (https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/).
var oneDevice = &Scene{Name: "a single device", Prepare: func(t *testing.T, env *kubetest.Env, _ string) {
	report := func(amount string) []string {
		return []string{"patch", "node", env.Cluster.NodeName(), "--subresource=status", "--type=merge", "-p", `{"status":{"capacity":{"` + device + `":` + amount + `}}}`}
	}
	kubectl(t, env, report(`"1"`)...)
	t.Cleanup(func() { _, _ = env.Cluster.Kubectl(context.Background(), report("null")...) })
	await.Until(t, "the kubelet allocates the device", func() bool {
		var node corev1.Node
		require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: env.Cluster.NodeName()}, &node))
		has := node.Status.Allocatable[device]
		return has.Value() == 1
	})
}}

// quotaOf returns a namespace that allows nothing of a resource.
func quotaOf(name string, none corev1.ResourceName) *Scene {
	return &Scene{Name: name, Prepare: func(t *testing.T, env *kubetest.Env, ns string) {
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{none: resource.MustParse("0")}},
		}
		require.NoError(t, env.Client.Create(t.Context(), quota))
		await.Until(t, "the quota is counted", func() bool {
			require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota))
			return len(quota.Status.Hard) == 1
		})
	}}
}

const webhookDown = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME}
webhooks:
- name: guard.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 1
  clientConfig: {url: "https://127.0.0.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
  rules: [{apiGroups: [GROUP], apiVersions: [v1], operations: [CREATE], resources: [KIND]}]
`

const policyDenies = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [GROUP], apiVersions: [v1], operations: [CREATE], resources: [KIND]}]
  validations: [{expression: "false", message: not today}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}}}
`

// admission makes a webhook or a policy refuse a kind in a namespace, and returns once it does.
func admission(manifest, group, kind string) func(*testing.T, *kubetest.Env, string) {
	return func(t *testing.T, env *kubetest.Env, ns string) {
		t.Helper()
		text := strings.NewReplacer("NAME", ns, "GROUP", group, "KIND", kind).Replace(manifest)
		env.Apply(t, text)
		await.Until(t, "the API server refuses "+kind, func() bool {
			command := []string{"-n", ns, "run", "probe", "--image=none", "--dry-run=server"}
			if kind == "deployments" {
				command = []string{"-n", ns, "create", "deployment", "probe", "--image=none", "--dry-run=server"}
			}
			_, err := env.Cluster.Kubectl(t.Context(), command...)
			return err != nil
		})
	}
}

func kubectl(t *testing.T, env *kubetest.Env, args ...string) {
	t.Helper()
	out, err := env.Cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err, string(out))
}
