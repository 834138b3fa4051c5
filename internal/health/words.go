package health

import (
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// words are an App's, and Kubernetes' own for the same.
var words = strings.NewReplacer(
	"in the App's spec", "in its manifest", "the App's spec", "its manifest", "the App's reference", "the reference",
	"the App's logs", "its logs", "the App's", "its", "this App", "this workload", "the App", "the workload",
	"probes.startup", "startupProbe", "probes.readiness", "readinessProbe", "probes.liveness", "livenessProbe",
	"volumes.existingClaim", "the volume's claimName", "volumes.claim.storageClass", "storageClassName",
	"security.runAsUser", "securityContext.runAsUser", "job.deadlineSeconds", "activeDeadlineSeconds",
	"spread.when to Preferred", "whenUnsatisfiable to ScheduleAnyway",
)

// reworded is a diagnosis for who has written a manifest.
func reworded(d *runnerapi.Diagnosis) *runnerapi.Diagnosis {
	out := *d
	out.Message, out.Fix = words.Replace(d.Message), words.Replace(d.Fix)
	return &out
}
