// Package e2e tests the whole product on its real parts: a Kubernetes, a
// RabbitMQ, the control plane with frps as a process, the agent as a pod, and
// the Runner's command line.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

const (
	agentName = "shop" // as in the documentation, whose examples run here
	runner    = "e2e"
	namespace = "production"
	// certificateTTL is short, so that certificates are renewed while the tests run.
	certificateTTL = 60 * time.Second
	// gatewayDomain is the domain below which each public App has a host.
	gatewayDomain = "apps.example.com"
	// closeTimeout bounds the clean-up.
	closeTimeout = 2 * time.Minute
)

// sys is the system that all tests share: they use Apps of their own, and put
// back what they break.
var (
	sys   *harness.System
	image string // of test/apps/hello
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("end-to-end tests need a cluster: not run with -short")
		return
	}
	os.Exit(harness.RunTests(m, harness.Options{
		Name: "e2e", Out: os.Stdout, ControlPlaneArgs: []string{"--certificate-ttl", certificateTTL.String()}, GatewayDomain: gatewayDomain,
	}, start))
}

func start(ctx context.Context, s *harness.System) (err error) {
	sys = s
	if sys.Binaries, err = harness.BuildChecked(ctx); err != nil {
		return err
	}
	// Commands of the documentation read these, and compile the latter.
	if err := inputs.Depend("deployments", "scripts"); err != nil {
		return err
	}
	if err := (programs.Program{Package: "./scripts/image"}).Depend(ctx); err != nil {
		return err
	}
	if err := sys.StartKubernetes(ctx); err != nil {
		return err
	}
	// The node's private address counts as a load balancer's.
	balancer := sys.Cluster.NodeIP() + "/32"
	sys.ControlPlaneArgs = append(sys.ControlPlaneArgs, "--gateway-direct-allow", balancer)
	sys.AgentSettings = map[string]string{"PIPEOPS_DIRECT_ADDRESSES": balancer}
	if err := sys.StartBroker(ctx); err != nil {
		return err
	}
	if err := sys.StartProduct(ctx, agentName, runner); err != nil {
		return err
	}
	image, err = sys.LoadApp(ctx, "hello")
	return err
}
