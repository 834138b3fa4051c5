package workloadhealth

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// words are an App's, and Kubernetes' own for the same.
var words = strings.NewReplacer(
	"run it again: an App with deploy or restart, a Job or a Pipeline with run", "run it again",
	"then deploy the App again, or restart it", "then apply the manifest or deploy the release again",
	"in the App's spec", "in its manifest", "the App's spec", "its manifest", "the App's reference", "the reference",
	"the App's logs", "its logs", "the App's", "its", "this App", "this workload", "the App", "the workload",
	"probes.startup", "startupProbe", "probes.readiness", "readinessProbe", "probes.liveness", "livenessProbe",
	"volumes.existingClaim", "the volume's claimName", "volumes.claim.storageClass", "storageClassName",
	"security.runAsUser", "securityContext.runAsUser", "job.deadlineSeconds", "activeDeadlineSeconds",
	"schedule.cron and schedule.timeZone", "schedule and timeZone", "schedule.cron", "schedule",
	"schedule.concurrency", "concurrencyPolicy", "schedule.startingDeadlineSeconds", "startingDeadlineSeconds",
	"spread.when to Preferred", "whenUnsatisfiable to ScheduleAnyway",
)

// unlimited have no progressDeadlineSeconds.
var unlimited = strings.NewReplacer(
	"if it needs longer, raise progressDeadlineSeconds", "if it needs longer, give its pods a startupProbe that allows for it")

// reworded returns a diagnosis in terms of manifests.
func reworded(d *runnerapi.Diagnosis, w client.Object) *runnerapi.Diagnosis {
	out := *d
	out.Message, out.Fix = words.Replace(d.Message), words.Replace(d.Fix)
	if _, limited := w.(*appsv1.Deployment); !limited {
		out.Fix = unlimited.Replace(out.Fix)
	}
	return &out
}
