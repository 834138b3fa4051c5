package attackers

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	agentName  = "shop"
	production = "production" // the managed namespace of test/kubetest/production.yaml
	agentSpace = "pipeops"
)

// The Runners: one that works, and one that means ill.
const (
	honest = "honest"
	evil   = "evil"
)

// sys is the system that all attackers share, one after the other.
var (
	sys   *harness.System
	image string // of test/apps/hello
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() || !suite.IsRelease() { // the tests skip
		os.Exit(m.Run())
	}
	os.Exit(harness.RunTests(m, harness.Options{Name: "attackers", Out: os.Stdout, AgentLogLevel: "info"}, start))
}

func start(ctx context.Context, s *harness.System) (err error) {
	sys = s
	if sys.Binaries, err = harness.Build(ctx); err != nil {
		return err
	}
	if err := inputs.Depend("deployments"); err != nil {
		return err
	}
	if err := sys.StartKubernetes(ctx); err != nil {
		return err
	}
	// Chart repositories and registries of the tests are plain HTTP: so their attempts are about
	// what they send, and none ends at the certificate.
	sys.AgentSettings = map[string]string{"PIPEOPS_CHART_HTTP_HOSTS": sys.HostIP()}
	if err := trustIssuer(sys); err != nil {
		return err
	}
	if err := sys.StartProduct(ctx, agentName, honest, evil); err != nil {
		return err
	}
	if image, err = sys.LoadApp(ctx, "hello"); err != nil {
		return err
	}
	return hideCanaries(ctx)
}
