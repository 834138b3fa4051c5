package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	// benchModule is a module of its own, for what only the benchmark needs.
	benchModule = "test/bench/peers"
	// fuzzTime is how long each fuzz target looks for new inputs.
	fuzzTime = "30s"
	// databaseVariable names the database that the tests use. Without it, that is SQLite.
	databaseVariable = "PIPEOPS_TEST_DATABASE"
	partNames        = "race, clusters, databases, machines, hostile, contract, failures, chaos, fuzz, journeys"
)

// release makes the tests run that are only in the release suite.
var release = []string{suite.Variable + "=" + suite.All}

// realParts are the packages whose tests bring up a cluster, a machine, or the whole system, or
// render in a child process. Such tests mostly wait, and most of our code runs in child processes
// there.
var realParts = []string{
	"/test/kubetest", "/test/cluster", "/test/machine", "/test/harness", "/test/buildkit", "/test/rendertest",
}

// usesRealParts reports whether a package's tests import one of them, or run a command line: that
// is a child process, too.
func (m *module) usesRealParts(pkg string) bool {
	return m.isCommandLine(pkg) || slices.ContainsFunc(m.deps[pkg], func(dep string) bool {
		return slices.ContainsFunc(realParts, func(part string) bool { return strings.HasPrefix(dep, modulePath+part) })
	})
}

func (m *module) isCommandLine(pkg string) bool { return strings.HasPrefix(m.dirs[pkg], "cmd/") }

// groups returns the packages with tests: those on real parts, and those whose tests run our code
// in their own process.
func (m *module) groups() (real, own []string) {
	for _, pkg := range m.tested() {
		if m.usesRealParts(pkg) {
			real = append(real, pkg)
		} else {
			own = append(own, pkg)
		}
	}
	return real, own
}

// testJobs returns what a change must pass. Most tests wait more than they compute, so two packages
// on real parts run beside two others.
func testJobs(m *module) []job {
	real, own := m.groups()
	return []job{
		{name: "packages on real parts", args: []string{"-p", "2"}, packages: slowestFirst(real)},
		{name: "packages in their own process", args: []string{"-p", "2"}, packages: slowestFirst(own)},
		{name: "the benchmark's own module", dir: benchModule, packages: []string{"./..."}},
	}
}

// raceJobs returns the short tests with the race detector.
func raceJobs(m *module) []job {
	real, own := m.groups()
	return []job{{name: "short tests with the race detector", race: true, args: []string{"-short"}, packages: append(own, ofProduct(real)...)}}
}

// shortJobs need neither a cluster nor a server.
func shortJobs() []job {
	return []job{
		{name: "short tests", args: []string{"-short"}, packages: []string{"./..."}},
		{name: "the benchmark's own module", dir: benchModule, args: []string{"-short"}, packages: []string{"./..."}},
	}
}

// slowestFirst sorts packages by their budgets, so that no slow one is alone at the end.
func slowestFirst(pkgs []string) []string {
	known, err := loadKnowledge()
	if err != nil {
		return pkgs // reported when the jobs run
	}
	return slices.SortedStableFunc(slices.Values(pkgs), func(a, b string) int {
		return cmp.Compare(known.budget(b), known.budget(a))
	})
}

// part is a piece of the release suite that `make test` leaves out.
type part struct {
	name, what string
	estimate   time.Duration // on two cores, with everything compiled, beside the other lanes
	lane       lane
	jobs       func(*module) []job
	atOnce     int      // how many of its jobs run at a time; 0 for the usual number
	product    bool     // its tests run the product's programs, scripts, charts and units
	files      []string // files, and folders with all that is below, that its tests read beside
}

// pages are the documents whose commands tests run.
var pages = []string{"docs", "README.md"}

// parts are in the order in which a change should hear of a failure. `make test-all` runs them
// after the tests that no part repeats, in lanes: machines, journeys and clusters beside race,
// databases, hostile, contract and failures, with fuzz in the time that these leave; then chaos
// alone. The estimates are rather long than short, because CI starts only what fits into its hour.
var parts = []part{
	{
		name: "race", what: "the race detector over the product's other packages, with their tests that take long: outages of brokers and receivers; releases, a broker's life", estimate: 19 * time.Minute, lane: serversLane, product: true, files: pages,
		jobs: func(m *module) []job {
			_, own := m.groups()
			raced := job{name: "with the race detector", env: release, race: true, args: []string{"-p", "2"}, packages: slowestFirst(ofProduct(own))}
			others := slices.Concat(m.below("scripts"), m.below("test/broker"), m.below("test/programs"))
			return append([]job{raced}, furtherJobs(m, others...)...)
		},
	},
	{
		name: "databases", what: "every control-plane test on PostgreSQL", estimate: 10 * time.Minute, lane: serversLane, files: pages,
		jobs: func(m *module) []job {
			return []job{{
				name: "on PostgreSQL", env: []string{databaseVariable + "=postgres"}, args: []string{"-p", "1"},
				packages: append(m.below("internal/controlplane"), m.below("cmd/controlplane")...),
			}}
		},
	},
	{
		name: "hostile", what: "100 000 hostile connections to a control plane's listeners, 10 000 to the gateway; attackers of the whole system", estimate: 7 * time.Minute, lane: serversLane, product: true,
		jobs: func(m *module) []job {
			return []job{
				{name: "hostile connections", env: append([]string{"PIPEOPS_TEST_HOSTILE_CONNECTIONS=100000"}, release...), args: []string{"-p", "1"}, packages: m.below("test/hostile")},
				{name: "hostile visitors of the gateway", env: []string{"PIPEOPS_TEST_HOSTILE_VISITORS=10000"}, args: []string{"-run", "^TestGateway_MemoryUnderAttack$"}, packages: []string{modulePath + "/internal/controlplane/gateway"}},
			}
		},
	},
	{
		name: "contract", what: "20 000 generated requests to the Runner API, each answer held against its document", estimate: 7 * time.Minute, lane: serversLane, product: true,
		files: []string{"docs/openapi.json"},
		jobs: func(m *module) []job {
			return []job{{name: "generated requests", env: []string{"PIPEOPS_TEST_CONTRACT_REQUESTS=20000"}, packages: m.below("test/contract")}}
		},
	},
	{
		name: "failures", what: "each failure of workloads, as an App, a set and a release", estimate: 9 * time.Minute, lane: serversLane,
		jobs: func(m *module) []job {
			return []job{{name: "failures", env: release, args: []string{"-v"}, packages: m.below("test/failures")}}
		},
	},
	{
		name: "machines", what: "the installer's life on Debian 11, 12 and 13; systemd and OpenRC services; self-updates; the charts' further lives", estimate: 13 * time.Minute, lane: machinesLane, product: true, files: pages,
		jobs: func(m *module) []job {
			return []job{{
				name: "machines", env: release, args: []string{"-p", "2"},
				packages: slices.Concat(m.below("test/install"), m.below("test/service"), m.below("test/selfupdate"), m.below("test/machine"), m.below("test/chart")),
			}}
		},
	},
	{
		name: "journeys", what: "further journeys end to end: kubectl, disruptions, replicas, tokens, Traefik, cert-manager, VPA, the documents' commands; the demo; lives of test clusters; alerts through Prometheus; the pages in Chromium; the documentation's site", estimate: 35 * time.Minute, lane: machinesLane, product: true, files: pages, // 18 where others' programs are compiled
		jobs: func(m *module) []job {
			return furtherJobs(m, slices.Concat(m.below("test/e2e"), m.below("test/demo"), m.below("test/cluster"), m.below("test/observe"), m.below("test/browser"), m.below("test/site"))...)
		},
	},
	{
		name: "clusters", what: "the race detector over the product's packages on real parts, with their tests that take long", estimate: 24 * time.Minute, lane: machinesLane, product: true, files: pages,
		jobs: func(m *module) []job {
			real, _ := m.groups()
			inProcess := slices.DeleteFunc(ofProduct(real), m.isCommandLine)
			return []job{{name: "real parts with the race detector", env: release, race: true, args: []string{"-p", "2"}, packages: slowestFirst(inProcess)}}
		},
	},
	{
		name: "chaos", what: "everything fails at random, from fixed seeds; the accountant's own check", estimate: 15 * time.Minute, lane: aloneLane, product: true,
		jobs: func(m *module) []job {
			return []job{{name: "chaos", env: release, args: []string{"-v", "-run", "^TestChaos$", "-count=1"}, packages: []string{modulePath + "/test/chaos"}}}
		},
	},
	{
		name: "fuzz", what: "each fuzz target for " + fuzzTime, estimate: 45 * time.Minute, lane: idleLane,
		jobs: fuzzJobs, atOnce: 6, // a target's time passes while others are compiled
	},
}

// ofProduct leaves out the packages of tests, scripts and documents: what they test runs in other
// processes.
func ofProduct(pkgs []string) []string {
	return slices.DeleteFunc(pkgs, func(p string) bool {
		top, _, _ := strings.Cut(short(p), "/")
		return slices.Contains([]string{"test", "scripts", "docs"}, top)
	})
}

// neverRun is what no suite of this repository runs.
var neverRun = []string{
	"an hour of chaos (`make chaos`), and the benchmarks (`make bench`)",
	"scripts/install.ps1 on Windows: its decisions are tested, the machine is not there",
	"a worker that joins a real k3s: get.k3s.io is a fake in these tests, named as such",
	"clusters and brokers with IPv6 alone; RabbitMQ 4",
}

func partNamed(name string) (part, error) {
	for _, p := range parts {
		if p.name == name {
			return p, nil
		}
	}
	return part{}, fmt.Errorf("there is no part %q: choose from %s", name, partNames)
}
