package diagnose

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// deadline finds a rollout that stopped getting anywhere without any of the
// other signals.
func deadline(ev *Evidence) *runnerapi.Diagnosis {
	if ev.Deployment == nil {
		return nil
	}
	for _, c := range ev.Deployment.Status.Conditions {
		if c.Type != appsv1.DeploymentProgressing || c.Status != corev1.ConditionFalse || c.Reason != "ProgressDeadlineExceeded" {
			continue
		}
		limit := int32(600)
		if s := ev.Deployment.Spec.ProgressDeadlineSeconds; s != nil {
			limit = *s
		}
		return &runnerapi.Diagnosis{
			Cause: runnerapi.CauseDeadlinePassed, Object: "deployment/" + ev.Deployment.Name,
			Message: fmt.Sprintf("the rollout made no progress for %d s%s", limit, stuck(ev.Pods)),
			Fix:     "look at the pod's events (kubectl describe pod) and the App's logs; if it needs longer, raise progressDeadlineSeconds",
		}
	}
	return nil
}

// stuck names a pod that is not ready and what it waits for.
func stuck(pods []*corev1.Pod) string {
	for _, pod := range pods {
		if !alive(pod) {
			continue
		}
		for _, c := range containersOf(pod) {
			if reason, _ := c.waiting(); reason != "" {
				return fmt.Sprintf("; pod %s: %s", pod.Name, reason)
			}
		}
	}
	return ""
}
