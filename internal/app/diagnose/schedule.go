package diagnose

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var insufficient = regexp.MustCompile(`Insufficient ([A-Za-z0-9._/-]+?)[,.;]?(?:\s|$)`)

const selectorFix = "correct nodeSelector and affinity, label a node as they ask (kubectl get nodes --show-labels), or add a node that fits"

// schedule finds a pod that no node takes.
func schedule(ev *Evidence) Finding {
	if ds := ev.DaemonSet; ds != nil && ds.Status.DesiredNumberScheduled == 0 {
		if pods := ds.Spec.Template.Spec; len(pods.NodeSelector) > 0 || pods.Affinity != nil {
			return found(&runnerapi.Diagnosis{
				Cause: runnerapi.CauseUnschedulable, Object: "daemonset/" + ds.Name,
				Message: "no node takes the App's pods: none fits their node selector and affinity, or those that fit have taints" + listed(taintsOf(ev.Tainted)),
				Fix:     selectorFix,
			})
		}
		return found(&runnerapi.Diagnosis{
			Cause: runnerapi.CauseUnschedulable, Object: "daemonset/" + ds.Name,
			Message: "no node takes the App's pods: all have taints, or there is none" + listed(taintsOf(ev.Tainted)),
			Fix:     strings.Join(append(taintFixes(taintsOf(ev.Tainted)), "add a node without taints (kubectl get nodes)"), "; "),
		})
	}
	var recheck time.Duration
	for _, pod := range ev.Pods {
		if !alive(pod) {
			continue
		}
		if f := unplaced(pod, ev); f.Diagnosis != nil || f.Recheck > 0 {
			if f.Diagnosis != nil {
				return f
			}
			recheck = Sooner(recheck, f.Recheck)
		}
		for _, cond := range pod.Status.Conditions {
			if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse && cond.Reason != corev1.PodReasonSchedulingGated {
				f := unbound(pod, cond, ev)
				if f.Diagnosis == nil && f.Recheck == 0 && cond.Reason == corev1.PodReasonUnschedulable {
					f.Diagnosis = unschedulable(pod, cond.Message, ev.Tainted)
				}
				if f.Diagnosis != nil {
					return f
				}
				recheck = Sooner(recheck, f.Recheck)
			}
		}
	}
	return Finding{Recheck: recheck}
}

// placedBy is how long a scheduler may take to report anything about a pod, and scheduling gates to
// be removed.
const placedBy = 30 * time.Second

// unplaced finds a pod that no scheduler has handled.
func unplaced(pod *corev1.Pod, ev *Evidence) Finding {
	begun := pod.Spec.NodeName != "" || len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) > 0 || Ready(pod)
	if begun || pod.CreationTimestamp.IsZero() {
		return Finding{}
	}
	gated := false
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason != corev1.PodReasonSchedulingGated {
			return Finding{}
		}
		gated = gated || c.Type == corev1.PodScheduled
	}
	if left := pod.CreationTimestamp.Add(placedBy).Sub(ev.Now); left > 0 && (gated || ev.Claims[pod.UID].Message == "") {
		return Finding{Recheck: left}
	}
	d := &runnerapi.Diagnosis{Cause: runnerapi.CauseUnschedulable, Object: "pod/" + pod.Name}
	scheduler := pod.Spec.SchedulerName
	switch {
	case gated:
		var gates []string
		for _, g := range pod.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		d.Message = "the pod may not be placed yet: it has scheduling gates " + clip(strings.Join(gates, ", "))
		d.Fix = "have what put the gates there take them away, or leave them out of the pods (kubectl get pod -o yaml)"
	case ev.Claims[pod.UID].Message != "":
		return unmade(pod, pod.CreationTimestamp.Time, ev)
	case scheduler != "" && scheduler != corev1.DefaultSchedulerName:
		d.Message = "no scheduler named " + scheduler + " has taken the pod"
		d.Fix = "correct schedulerName in what makes the pods, or start that scheduler"
	case len(claimNames(pod)) > 0: // it may wait for a volume that is being made
		return unmade(pod, pod.CreationTimestamp.Time, ev)
	default:
		d.Message = "the cluster's scheduler has not looked at the pod"
		d.Fix = "see that the scheduler runs (kubectl -n kube-system get pods)"
	}
	return found(d)
}

func unschedulable(pod *corev1.Pod, message string, tainted []*corev1.Node) *runnerapi.Diagnosis {
	message, _, _ = strings.Cut(message, " preemption:")
	message, _, _ = strings.Cut(message, " no new claims to deallocate")
	if strings.Contains(message, noFreePorts) && !insufficient.MatchString(message) {
		return noHostPort(pod, message)
	}
	taints := taintsIn(message)
	said := clip(message)
	if unnamed(message) {
		taints = taintsOf(tainted)
		said = strings.TrimSuffix(said, ".") + listed(taints)
	}
	short, fixes := shortages(pod, message, tainted)
	return &runnerapi.Diagnosis{
		Cause: runnerapi.CauseUnschedulable, Object: "pod/" + pod.Name,
		Message: "no node takes the pod: " + joined(said, short),
		Fix:     unschedulableFix(pod, message, taints, fixes),
	}
}

func unschedulableFix(pod *corev1.Pod, message string, taints, fixes []string) string {
	fixes = append(fixes, taintFixes(taints)...)
	switch {
	case strings.Contains(message, "no nodes available"):
		fixes = append(fixes, "add a node to the cluster (kubectl get nodes)")
	case strings.Contains(message, "were unschedulable"):
		fixes = append(fixes, "uncordon a node (kubectl uncordon NODE)")
	case strings.Contains(message, "node affinity/selector"):
		fixes = append(fixes, selectorFix)
	case strings.Contains(message, "topology spread constraints"):
		fixes = append(fixes, "set spread.when to Preferred, or add a node")
	case strings.Contains(message, noFreePorts):
		fixes = append(fixes, hostPortFix(pod))
	case strings.Contains(message, "Too many pods"):
		fixes = append(fixes, "add a node, or delete pods that are not needed (kubectl get pods -A): the nodes' limit of pods is reached")
	}
	if len(fixes) == 0 {
		return "add a node that fits, or change in the App's spec what the message names (kubectl describe nodes)"
	}
	return strings.Join(fixes, "; ")
}

// joined puts a further part behind a sentence of the scheduler's.
func joined(said, more string) string {
	if more == "" {
		return said
	}
	return strings.TrimSuffix(said, ".") + more
}

// shortages returns what the nodes have of the resources that a scheduler finds short, and the
// fixes.
func shortages(pod *corev1.Pod, message string, nodes []*corev1.Node) (why string, fixes []string) {
	for _, m := range insufficient.FindAllStringSubmatch(message, -1) {
		name := corev1.ResourceName(m[1])
		have, fix := tooLarge(pod, name, nodes), resourceFix(pod, name)
		if runnerapi.ExtendedResource(m[1]) {
			if said, by := (device{pod, name, nodes}).shortage(message); by != "" {
				have, fix = said, by
			}
		}
		why, fixes = why+have, add(fixes, fix)
	}
	return why, fixes
}

// tooLarge names the largest node where no node could ever have what the pod asks for.
func tooLarge(pod *corev1.Pod, name corev1.ResourceName, nodes []*corev1.Node) string {
	var largest *corev1.Node
	for _, node := range nodes {
		if has := node.Status.Allocatable[name]; largest == nil || has.Cmp(largest.Status.Allocatable[name]) > 0 {
			largest = node
		}
	}
	if largest == nil {
		return ""
	}
	asks, has := requested(pod, name), largest.Status.Allocatable[name]
	if asks.Cmp(has) <= 0 {
		return ""
	}
	return fmt.Sprintf("; it asks for %s of %s, and the largest node, %s, has %s", asks.String(), name, largest.Name, has.String())
}

// requested returns how much of a resource the scheduler looks for on a node.
func requested(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	return podresource.PodRequests(pod, podresource.PodResourcesOptions{})[name]
}

func resourceFix(pod *corev1.Pod, name corev1.ResourceName) string {
	now := ""
	if q := requested(pod, name); !q.IsZero() {
		now = fmt.Sprintf(" (now %s per pod)", q.String())
	}
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory:
		return fmt.Sprintf("ask for less in resources.requests.%s%s, free %s on the nodes, or add a node", name, now, name)
	}
	return fmt.Sprintf("free %s on the nodes (kubectl describe nodes), or add a node that has it%s", name, now)
}
