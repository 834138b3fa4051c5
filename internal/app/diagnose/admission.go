package diagnose

import (
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// admission finds pods that the cluster refuses to create. The ReplicaSet reports that, and the
// Deployment repeats it.
func admission(ev *Evidence) *runnerapi.Diagnosis {
	if ev.ReplicaSet != nil {
		for _, c := range ev.ReplicaSet.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue && c.Reason == "FailedCreate" {
				return Refused(c.Message, "replicaset/"+ev.ReplicaSet.Name)
			}
		}
	}
	if ev.Refused != "" {
		return Refused(createPrefix.ReplaceAllString(ev.Refused, ""), ev.RefusedObject)
	}
	return nil
}

// createPrefix is what controllers put before a refusal in an event: "Error
// creating: ", "Error creating job: ", or "create Pod web-0 in StatefulSet web failed error: ".
var createPrefix = regexp.MustCompile(`^(Error creating: |Error creating job: |create Pod \S+ in StatefulSet \S+ failed error: )`)

var (
	quotaName = regexp.MustCompile(`exceeded quota: ([^,]+), (requested: .*)$`)
	podPrefix = regexp.MustCompile(`^(pods|Pod) "[^"]*" is (forbidden|invalid): `)
	down      = regexp.MustCompile(`failed calling webhook "([^"]+)": (.*)`)
	webhook   = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	policy    = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`)
)

// FromPolicy reports whether a message is that of a policy or a webhook, rather than of the API
// server about an object that is wrong.
func FromPolicy(message string) bool {
	return down.MatchString(message) || webhook.MatchString(message) || policy.MatchString(message)
}

// Refused returns the diagnosis of a message with which the cluster refused an object.
func Refused(message, object string) *runnerapi.Diagnosis {
	d := &runnerapi.Diagnosis{Object: object}
	told := clip(podPrefix.ReplaceAllString(message, ""))
	switch {
	case strings.Contains(message, "exceeded quota"):
		d.Cause, d.Message = runnerapi.CauseQuotaExceeded, "the namespace's quota allows no more pods of this App: "+told
		d.Fix = "ask for less in resources or replicas, delete what is not needed, or raise the quota (kubectl describe resourcequota)"
		if m := quotaName.FindStringSubmatch(message); m != nil {
			d.Message = "quota " + m[1] + " of the namespace allows no more pods of this App: " + clip(m[2])
			d.Fix = "ask for less in resources or replicas, delete what is not needed, or raise quota " + m[1] + " (kubectl edit resourcequota " + m[1] + ")"
		}
		return d
	case strings.Contains(message, "failed quota"):
		d.Cause, d.Message = runnerapi.CauseQuotaExceeded, "the namespace's quota refuses the pods: "+told
		d.Fix = "set what the message names in resources"
		return d
	}
	if m := down.FindStringSubmatch(message); m != nil {
		d.Cause, d.Message = runnerapi.CauseAdmissionRefused, "webhook "+m[1]+" of the cluster does not answer, so nothing is admitted: "+clip(m[2])
		d.Fix = "bring webhook " + m[1] + " back, or ask its owner (kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations); the App then continues by itself"
		return d
	}
	d.Cause, d.Message = runnerapi.CauseAdmissionRefused, "the cluster refuses the pods: "+told
	switch m, p := webhook.FindStringSubmatch(message), policy.FindStringSubmatch(message); {
	case p != nil:
		d.Fix = "change in the App's spec what policy " + p[1] + " names, or ask its owner (kubectl describe validatingadmissionpolicy " + p[1] + ")"
	case m != nil:
		d.Fix = "change in the App's spec what policy " + m[1] + " names, or ask its owner (kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations)"
	case strings.Contains(message, "violates PodSecurity"):
		d.Fix = "take back what security loosens, or use a namespace whose pod security level allows it (kubectl get namespaces -L pod-security.kubernetes.io/enforce)"
	case strings.Contains(message, "per Container"), strings.Contains(message, "per Pod"):
		d.Fix = "set resources within the namespace's LimitRange (kubectl describe limitrange)"
	default:
		d.Fix = "change in the App's spec what the message names (kubectl get events shows all of it)"
	}
	return d
}
