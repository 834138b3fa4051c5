package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// agentLabel is on the agent's own pods, by its manifest and its chart.
const agentLabel = "app.kubernetes.io/name"

// maxNamed bounds the pods that an error names.
const maxNamed = 10

// Cordon implements backend.Nodes.
func (k Nodes) Cordon(ctx context.Context, name string, cordoned bool, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	node, err := k.node(ctx, name)
	if err != nil {
		return node, err
	}
	if late, err := opts.Late(ctx); late || err != nil {
		return node, err
	}
	if err := k.setCordoned(ctx, name, cordoned, opts); err != nil {
		return node, err
	}
	if opts.DryRun {
		node.Schedulable = !cordoned
		return node, nil
	}
	return k.node(ctx, name)
}

func (k Nodes) setCordoned(ctx context.Context, name string, cordoned bool, opts runnerapi.WriteOptions) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{
			objectmeta.ChangedBy: opts.Caller.Runner, objectmeta.RequestID: opts.Caller.RequestID,
		}},
		"spec": map[string]any{"unschedulable": cordoned},
	})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return nodeProblem(k.writer(opts).Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)), "changing node "+name)
}

// nodeProblem explains missing rights that the agent has only if the cluster owner has granted
// them.
func nodeProblem(err error, doing string) error {
	if lacksRights(err) {
		return problem.Errorf(problem.Forbidden, "grant them: kubectl apply -f deployments/node-rights.yaml (docs/deployer/nodes.md)",
			"%s: the agent lacks the rights to manage nodes, which are not among its own: %s", doing, err)
	}
	return kubeproblem.From(err, doing)
}

// lacksRights reports whether it is RBAC that refuses, and not admission.
func lacksRights(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot ")
}

// Drain implements backend.Nodes. It does not use kubectl's own drain, which brings the whole
// of cli-runtime along, needs rights to read DaemonSets and reports its progress by printing.
func (k Nodes) Drain(ctx context.Context, name string, options runnerapi.DrainOptions, opts runnerapi.WriteOptions) (runnerapi.Drain, error) {
	out := runnerapi.Drain{Node: name}
	if _, err := k.node(ctx, name); err != nil {
		return out, err
	}
	pods, skipped, err := k.podsToDrain(ctx, name)
	if err != nil {
		return out, err
	}
	out.Skipped = skipped
	if err := k.refuseDrain(name, pods, options); err != nil {
		return out, err
	}
	if late, err := opts.Late(ctx); late || err != nil {
		return out, err
	}
	if err := k.setCordoned(ctx, name, true, opts); err != nil {
		return out, err
	}
	for i := range pods {
		if err := k.drainPod(ctx, &pods[i], options, opts, &out); err != nil {
			return out, err
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
	out.Done = len(out.Remaining) == 0
	return out, nil
}

// podsToDrain returns the pods that a drain takes away, and the number of those that stay.
func (k Nodes) podsToDrain(ctx context.Context, node string) (pods []corev1.Pod, skipped int, err error) {
	on := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}
	err = k.pages(ctx, &corev1.PodList{}, func(list client.ObjectList) error {
		for _, pod := range list.(*corev1.PodList).Items {
			owner := metav1.GetControllerOf(&pod)
			_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
			if mirror || owner != nil && owner.Kind == "DaemonSet" && !ended(&pod) {
				skipped++
				continue
			}
			pods = append(pods, pod)
		}
		return nil
	}, on)
	return pods, skipped, kubeproblem.From(err, "reading the pods of node "+node)
}

// refuseDrain is called before anything is changed.
func (k Nodes) refuseDrain(node string, pods []corev1.Pod, options runnerapi.DrainOptions) error {
	var lost, data []string
	for i := range pods {
		pod := &pods[i]
		if ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		if pod.Namespace == k.opts.Namespace && pod.Labels[agentLabel] == objectmeta.FieldManager {
			return problem.Errorf(problem.Conflict, "move the agent first: cordon the node (pipeops-runner node cordon) and have the pod recreated elsewhere "+
				"(kubectl -n "+pod.Namespace+" rollout restart deployment pipeops-agent), then drain again",
				"the agent itself runs on node %s, as pod %s: it would cut off its own drain", node, name)
		}
		if metav1.GetControllerOf(pod) == nil && !options.Force {
			lost = append(lost, name)
		}
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) && !options.DeleteEmptyDirData {
			data = append(data, name)
		}
	}
	switch {
	case len(lost) > 0:
		return problem.Errorf(problem.Conflict, "move them, or give them up with force", "no controller makes these pods again elsewhere: %s", naming(lost)).WithField("force")
	case len(data) > 0:
		return problem.Errorf(problem.Conflict, "give the data up with deleteEmptyDirData", "these pods would lose the data of their emptyDir volumes: %s", naming(data)).
			WithField("deleteEmptyDirData")
	}
	return nil
}

func naming(pods []string) string {
	if more := len(pods) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(pods[:maxNamed], ", "), more)
	}
	return strings.Join(pods, ", ")
}

// drainPod evicts a pod, or notes why it is still there.
func (k Nodes) drainPod(ctx context.Context, pod *corev1.Pod, options runnerapi.DrainOptions, opts runnerapi.WriteOptions, out *runnerapi.Drain) error {
	remains := func(state, message string) {
		out.Remaining = append(out.Remaining, runnerapi.DrainingPod{Namespace: pod.Namespace, Name: pod.Name, State: state, Message: message})
	}
	if pod.DeletionTimestamp != nil {
		remains("terminating", "")
		return nil
	}
	eviction := &policyv1.Eviction{
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: options.GracePeriodSeconds, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		},
	}
	if opts.DryRun {
		eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	}
	err := k.client.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case err == nil && opts.DryRun:
		remains("waiting", "")
	case err == nil:
		out.Evicted = append(out.Evicted, pod.Namespace+"/"+pod.Name)
		remains("terminating", "")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it went by itself, or another has its name now
		if apierrors.IsConflict(err) {
			remains("waiting", "")
		}
	case apierrors.IsTooManyRequests(err):
		remains("blocked", budgetIn(err))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		remains("terminating", "its namespace is being deleted")
	case apierrors.IsInternalError(err): // two budgets for one pod: Kubernetes evicts none of those
		remains("blocked", err.Error())
	case ctx.Err() != nil, lacksRights(err):
		return nodeProblem(err, "evicting pod "+pod.Namespace+"/"+pod.Name)
	default: // of this pod, such as an admission webhook's; the others go on
		remains("failed", kubeproblem.From(err, "evicting it").Error())
	}
	return nil
}

// budgetIn returns the API server's message about the budget that blocks an eviction.
func budgetIn(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Type == policyv1.DisruptionBudgetCause {
				return c.Message
			}
		}
	}
	return err.Error()
}
