// Command setup prepares everything that the demo, the tests and the checks need: programs
// compiled, the test cluster's parts built, RabbitMQ and PostgreSQL installed. It reports its steps
// and progress, and is quick when there is nothing to do.
//
// It imports nothing that must be downloaded. So on a fresh machine it runs, and reports that,
// before anything else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const stopTimeout = 15 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup: failed:", err)
		os.Exit(1)
	}
}

// step is one thing to get ready. Doing it again does no harm and takes no time.
type step struct {
	title string
	do    func(ctx context.Context, out io.Writer) error
}

var raceFlags = append([]string{"-test"}, suite.RaceFlags...)

var (
	// The flags and environments are those of the builds that come later: only
	// then do these find everything compiled. All share -trimpath.
	programs = compile{
		patterns: []string{"./cmd/...", "./test/cluster/cmd/cluster", "./test/debian/cmd/server", "./test/demo", "./test/bench", "./test/chaos"},
	}
	tests = compile{flags: []string{"-test"}, patterns: []string{"./..."}}
	raced = compile{flags: raceFlags, cgo: true, patterns: []string{"./..."}}
	// The charts' tests build them with these flags.
	chart = compile{dir: "test/chart/tools", patterns: []string{"tool"}}
	// The release's tests of the charts build it with these flags.
	helm3 = compile{dir: "test/chart/helm3", patterns: []string{"tool"}}
	// The release's tests of encrypted files build it with these flags.
	sops = compile{dir: "test/sops", patterns: []string{"tool"}}
	// The release's tests of image signatures build it with these flags.
	cosign = compile{dir: "test/cosign", patterns: []string{"tool"}}
	// The release's test of GitHub's workflow builds it with these flags.
	act   = compile{dir: "test/act", patterns: []string{"tool"}}
	gitea = compile{dir: "test/gitea/program", patterns: []string{"tool"}}
	// The release's packages are made by it, with these flags.
	nfpm = compile{flags: []string{"-modfile=internal/tools/nfpm/go.mod"}, patterns: []string{"tool"}}
	// The documentation's site is made by it, with these flags.
	hugo = compile{flags: []string{"-modfile=internal/tools/hugo/go.mod"}, patterns: []string{"tool"}}
	// The alert rules' tests build it with these flags.
	promtool = compile{dir: "test/upstream/prometheus", flags: []string{"-tags=remove_all_sd"}, patterns: []string{"github.com/prometheus/prometheus/cmd/promtool"}}
	// The gateway's tests of HTTP/2 and gRPC build them with these flags.
	conformance = compile{dir: "test/conformance/tools", patterns: []string{"tool", "./grpcserver"}}
	// The test of the Runner in TypeScript builds it with these flags.
	esbuild = compile{dir: "test/e2e/tools", patterns: []string{"tool"}}
	// The console's tests sign in at it, built with these flags.
	dex = compile{dir: "test/dex/program", patterns: []string{"."}}
	// The builds' tests make an image of it.
	buildkit = compile{dir: "test/buildkit/tools", patterns: []string{"tool"}}
	// The provider's tests, and OpenTofu for the long ones among them, which build it with these
	// flags.
	provider = compile{dir: "terraform", flags: []string{"-test"}, patterns: []string{"./..."}}
	tofu     = compile{dir: "terraform", flags: []string{"-modfile=tools/go.mod"}, patterns: []string{"tool"}}
	// The tunnel's peers, for the benchmark.
	peers     = compile{dir: "test/bench/peers", patterns: []string{"."}}
	gotestsum = compile{flags: []string{"-modfile=internal/tools/gotestsum/go.mod"}, patterns: []string{"tool"}}
	lint      = compile{flags: []string{"-modfile=internal/tools/go.mod"}, patterns: []string{"tool"}}
)

// stepsFor returns nil for what it does not know.
func stepsFor(what string) []step {
	compilePrograms := step{"compile agent, control plane, Runner and the tools around them", programs.run}
	getCluster := step{"get the test cluster's parts", goRun("./test/cluster/cmd/cluster", "build")}
	getSimulation := step{"get the test cluster's parts", goRun("./test/cluster/cmd/cluster", "build", "--simulation")}
	compilePeers := step{"compile the tunnel's peers (some minutes the first time)", peers.run}
	getBroker := step{"get RabbitMQ", goRun("./test/debian/cmd/server", "install", "broker")}
	getPostgres := step{"get PostgreSQL", goRun("./test/debian/cmd/server", "install", "postgres")}
	getMachine := step{"get a Debian for test machines", goRun("./test/machine/cmd/rootfs", "bookworm")}
	getMachines := step{"get Debian 11, 12 and 13 for test machines, and one with OpenRC", goRun("./test/machine/cmd/rootfs", "bullseye", "bookworm", "trixie", "bookworm-openrc")}
	getBrowser := step{"get Chromium", packages("chromium")}
	getLanguages := step{"get what the Runners of examples/ and the types for clients need", packages("python3", "python3-pika", "node", "npm")}
	compileUpstream := step{"compile Traefik, cert-manager, VPA's recommender, External Secrets, Prometheus and Loki (some minutes the first time)", goRun("./test/upstream/cmd/upstream")}
	compileTests := step{"compile the tests (some ten minutes the first time)", tests.run}
	compileProvider := step{"compile the provider for Terraform and its tests", provider.run}
	compileReporter := step{"compile gotestsum", gotestsum.run}
	compileRaces := step{"compile the tests with the race detector", raced.run}
	switch what {
	case "demo":
		if os.Getenv("KUBECONFIG") != "" { // theirs
			return []step{compilePrograms, getBroker}
		}
		return []step{compilePrograms, getCluster, getBroker}
	case "bench":
		return []step{compilePrograms, compilePeers, getSimulation, getBroker, getBrowser, compileUpstream}
	case "bench-apps":
		return []step{compilePrograms, getSimulation, getBroker}
	case "bench-streams", "bench-sources":
		return []step{compilePrograms, getCluster, getBroker}
	case "bench-monitoring":
		return []step{compilePrograms, getCluster, getBroker, compileUpstream}
	case "bench-tunnel", "bench-gateway":
		return []step{compilePeers}
	case "bench-agents":
		return []step{compilePrograms, compilePeers, getBroker, getBrowser}
	case "chaos":
		return []step{compilePrograms, getSimulation, getBroker, getPostgres}
	case "test-short":
		return []step{compileTests, compileProvider, compileReporter}
	case "test", "test-all":
		getTools := step{"get what the tests and the documentation's examples use", packages("curl", "jq", "minisign", "openssl", "python3", "sqlite3")}
		steps := []step{
			compilePrograms, getCluster, getBroker, getPostgres, getMachine, getTools, {"compile Helm and kubeconform", chart.run}, {"compile promtool", promtool.run}, {"compile BuildKit", buildkit.run},
			compileTests, compileProvider, compileReporter,
		}
		if what == "test-all" {
			steps = append(steps, getMachines, getSimulation, getBrowser, getLanguages, step{"compile h2spec and gRPC's tests", conformance.run}, step{"compile esbuild", esbuild.run}, step{"compile dex", dex.run}, step{"compile OpenTofu (some minutes the first time)", tofu.run},
				compileUpstream,
				step{"compile Helm 3", helm3.run}, step{"compile sops", sops.run}, step{"compile cosign (some minutes the first time)", cosign.run}, step{"compile act", act.run}, step{"compile Gitea (some minutes the first time)", gitea.run}, step{"compile nfpm", nfpm.run}, step{"compile Hugo", hugo.run}, compileRaces)
		}
		return steps
	case "check":
		return []step{{"compile the linters", lint.run}, compileTests, compileReporter, compileRaces,
			{"lint once, which fills the linter's cache", warm("go", "tool", "-modfile=internal/tools/go.mod", "golangci-lint", "run", "--issues-exit-code=0", "./...")}}
	}
	return nil
}

func run(ctx context.Context, out io.Writer, args []string) error {
	steps := stepsFor(strings.Join(args, " "))
	if steps == nil {
		return errors.New("say what for: `setup demo`, `setup test`, `setup test-short`, `setup test-all`, `setup bench` (or bench-apps, bench-streams, bench-sources, bench-monitoring, bench-tunnel, bench-agents, bench-gateway), `setup chaos` or `setup check`")
	}
	for i, s := range steps {
		fmt.Fprintf(out, "== setup %d/%d: %s\n", i+1, len(steps), s.title)
		start := time.Now()
		if err := s.do(ctx, out); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
		if took := time.Since(start); took > 10*time.Second {
			fmt.Fprintf(out, "   took %s\n", took.Round(time.Second))
		}
	}
	return nil
}

// goRun runs a program of this repository, which reports its progress itself.
func goRun(pkg string, args ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		cmd := command(ctx, append([]string{"run", "-trimpath", pkg}, args...)...)
		cmd.Stdout, cmd.Stderr = out, out
		return cmd.Run()
	}
}

// command returns the go command with a gentle end.
func command(ctx context.Context, args ...string) *exec.Cmd { return gently(ctx, "go", args...) }

// gently returns a command with a gentle end: what it runs has to clean up.
func gently(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	// As a terminal does it: go cleans up after an interrupt only, and passes none on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	return cmd
}
