package diagnose

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// names is what a fix has to name: a command, or a field of the App's spec.
var names = regexp.MustCompile(`\b(kubectl|docker|curl|logs|restart|image|imagePullSecrets|imagePullPolicy|command|args|ports|type Job|` +
	`replicas|resources|probes\.|volumes|schedule\.|scaleTargetRef|ingress\.|spread\.|security|job\.|App's reference)\b|\bUSER `)

// checkFix says whether a fix tells where to lay hands on.
func checkFix(t *testing.T, d *runnerapi.Diagnosis) {
	t.Helper()
	assert.Regexp(t, names, d.Fix, "a fix names a command or a field")
	assert.NotEmpty(t, d.Object, "the object that the signal came from")
}
