package command

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

// TestComponentsStatus has components that are installed, and what others provide.
func TestComponentsStatus(t *testing.T) {
	release := func(name, status, version, newest string) []components.ReleaseStatus {
		return []components.ReleaseStatus{{Namespace: "a", Name: name, Status: status, Version: version, Newest: newest, Changed: time.Now().Add(-49 * time.Hour)}}
	}
	var out strings.Builder
	statusTable(&out, []components.Status{
		{Component: "vpa", What: "recommendations", Releases: release("vpa", "deployed", "0.10.0", "0.11.0"), State: &components.State{Component: "vpa", Ready: true}},
		{Component: "loki", What: "logs", Releases: release("loki", "deployed", "1.0.0", "1.0.0"), State: &components.State{
			Component: "loki", Workload: "monitoring/loki", Cause: "ImageNotFound", Message: "the image does not exist", Fix: "correct it",
		}},
		{Component: "grafana", What: "dashboards", Releases: release("grafana", "pending-install", "1.0.0", "1.0.0")},
		{Component: "ingress", What: "an ingress controller", Present: "IngressClass traefik"},
		{Component: "istio", What: "a service mesh"},
	})
	for _, line := range []string{
		`COMPONENT +STATE +RELEASE +VERSION +NEWEST +AGE +PROVIDES`,
		`vpa +ready +vpa +0\.10\.0 +0\.11\.0 +2d`,
		`loki +ImageNotFound +loki`,
		`grafana +pending-install +grafana`,
		`ingress +others': IngressClass traefik +- +- +- +-`,
		`istio +absent`,
		`loki: monitoring/loki: the image does not exist \(fix: correct it\)`,
	} {
		assert.Regexp(t, line, strings.ReplaceAll(out.String(), "\t", " "))
	}
}
