package attackers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// inventory is every object outside of the Runner's namespaces, with its version: another version
// is a write.
type inventory map[string]string

// ours are the kinds that the agent and Kubernetes write as they work, by namespace; * is any.
var ours = map[string][]string{
	"*":                    {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io", "endpoints"},
	metav1.NamespaceNone:   {"nodes", "flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "apiservices.apiregistration.k8s.io", "ipaddresses.networking.k8s.io"},
	agentSpace:             {"controllerrevisions.apps", "pods", "replicasets.apps", "deployments.apps"}, // its audit log; its pod's status
	metav1.NamespaceSystem: {"pods", "replicasets.apps", "deployments.apps"},
}

// stock lists the objects of all kinds.
func stock(t *testing.T) inventory {
	t.Helper()
	managedNow, out := managedNamespaces(t), inventory{}
	api, err := metadata.NewForConfig(sys.Kube.Config)
	require.NoError(t, err)
	for _, r := range listable(t) {
		list, err := api.Resource(r).List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsServiceUnavailable(err) {
			continue
		}
		require.NoError(t, err, "list %s", r)
		for _, o := range list.Items {
			if managedNow[o.Namespace] || !counts(r, o.Namespace) {
				continue
			}
			out[name(r, &o)] = version(r, &o)
		}
	}
	return out
}

func managedNamespaces(t *testing.T) map[string]bool {
	t.Helper()
	list, err := sys.Kube.Clientset.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: objectmeta.ManagedBy + "=" + objectmeta.ManagedByAgent})
	require.NoError(t, err)
	out := map[string]bool{}
	for _, ns := range list.Items {
		out[ns.Name] = true
	}
	return out
}

// listable returns all resources that can be listed.
func listable(t *testing.T) (out []schema.GroupVersionResource) {
	t.Helper()
	groups, err := sys.Kube.Clientset.Discovery().ServerPreferredResources()
	if !discovery.IsGroupDiscoveryFailedError(err) {
		require.NoError(t, err)
	}
	for _, group := range groups {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		require.NoError(t, err)
		for _, r := range group.APIResources {
			if slices.Contains(r.Verbs, "list") && !strings.Contains(r.Name, "/") && gv.Group != "metrics.k8s.io" {
				out = append(out, gv.WithResource(r.Name))
			}
		}
	}
	return out
}

func counts(r schema.GroupVersionResource, namespace string) bool {
	kind := r.GroupResource().String()
	return !slices.Contains(ours["*"], kind) && !slices.Contains(ours[namespace], kind)
}

func name(r schema.GroupVersionResource, o *metav1.PartialObjectMetadata) string {
	return strings.TrimSpace(r.GroupResource().String() + " " + o.Namespace + "/" + o.Name)
}

// version is the generation where an object has one, because a status may change, with the labels.
func version(r schema.GroupVersionResource, o *metav1.PartialObjectMetadata) string {
	text := fmt.Sprintf("%s %v %v %v", o.UID, o.Labels, o.Finalizers, o.OwnerReferences)
	if o.Generation > 0 {
		return fmt.Sprintf("%s generation %d", text, o.Generation)
	}
	if r.Group == "" && r.Resource == "namespaces" {
		return text
	}
	return text + " version " + o.ResourceVersion
}

// since returns what is new or different. A namespace that the agent manages now, and that was not
// there before, is the Runner's.
func (now inventory) since(before inventory, made map[string]bool) (changed []string) {
	for _, n := range slices.Sorted(maps.Keys(now)) {
		if before[n] == now[n] || before[n] == "" && made[strings.TrimPrefix(n, "namespaces /")] {
			continue
		}
		changed = append(changed, fmt.Sprintf("%s: %s, before: %s", n, now[n], before[n]))
	}
	for _, n := range slices.Sorted(maps.Keys(before)) {
		if _, still := now[n]; !still {
			changed = append(changed, n+" is gone")
		}
	}
	return changed
}

// judge has the API server say whether a pod is within the baseline of pod security, by a dry run
// in a namespace that enforces it.
func judge(ctx context.Context, pod *corev1.Pod) error {
	spec := pod.Spec.DeepCopy()
	spec.NodeName, spec.ServiceAccountName, spec.PriorityClassName, spec.Priority = "", "", "", nil
	spec.EphemeralContainers = nil
	for _, e := range pod.Spec.EphemeralContainers { // a new pod has none: they are judged as others
		spec.Containers = append(spec.Containers, corev1.Container{Name: e.Name, Image: e.Image, SecurityContext: e.SecurityContext, Ports: e.Ports})
	}
	_, err := sys.Kube.Clientset.CoreV1().Pods(judgeSpace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "judged", Annotations: pod.Annotations}, Spec: *spec,
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
