package attackers

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	agentName  = "shop"
	production = "production" // the managed namespace of deployments/namespaces.yaml
	agentSpace = "pipeops"
	// closeTimeout bounds the clean-up.
	closeTimeout = 2 * time.Minute
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runTests(ctx, m)
	stop()
	os.Exit(code)
}

func runTests(ctx context.Context, m *testing.M) (code int) {
	var err error
	if sys, err = harness.New(harness.Options{Name: "attackers", Out: os.Stdout, AgentLogLevel: "info"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if code != 0 {
			saveLogs(ctx)
		}
		if err := sys.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "clean-up:", err)
			code = 1
		}
	}()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "start the system:", err)
		return 1
	}
	return inputs.Main(m)
}

func start(ctx context.Context) (err error) {
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
	if err := sys.StartControlPlane(ctx); err != nil {
		return err
	}
	for _, name := range []string{honest, evil} {
		if _, err := sys.CreateRunner(ctx, name); err != nil {
			return err
		}
	}
	token, err := sys.CreateToken(ctx)
	if err != nil {
		return err
	}
	if err := sys.DeployAgent(ctx, agentName, token); err != nil {
		return err
	}
	if image, err = sys.LoadApp(ctx, "hello"); err != nil {
		return err
	}
	return hideCanaries(ctx)
}

// saveLogs keeps what is needed to find out why a test failed.
func saveLogs(ctx context.Context) {
	dir, err := os.MkdirTemp("", "pipeops-attackers-failed-")
	if err == nil {
		err = sys.SaveLogs(ctx, dir)
	}
	fmt.Fprintln(os.Stderr, "logs of the parts:", dir, err)
}
