package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// fuzzTime is how long each fuzz target looks for new inputs.
const fuzzTime = "30s"

// Lanes of parts: the parts of a lane run one after another, the lanes side by side.
const (
	machinesLane = iota // mostly waits for machines and clusters
	serversLane         // brokers, databases and a control plane
	idleLane            // the processor time that the others leave
	aloneLane           // begins when the others have ended, which would disturb what it measures
)

// part is a piece of the release suite that `make test` leaves out.
type part struct {
	name, what string
	estimate   time.Duration // on two cores, with everything compiled, beside the other lanes
	lane       int
	jobs       func(*module) []job
	atOnce     int      // how many of its jobs run at a time; one if 0
	nightly    bool     // too long for a change: `make test-all` and `make test-part` run it
	product    bool     // its tests run the product's programs, scripts, charts and units
	files      []string // files, and folders with all that is below, that its tests read as well
}

// pages are the documents whose commands tests run.
var pages = []string{"docs", "README.md"}

const partNames = "race, databases, hostile, contract, failures, machines, journeys, clusters, chaos, fuzz"

// parts are in the order in which a change should hear of a failure. The estimates are rather long
// than short, because CI starts only what fits into its hour.
var parts = []part{
	{
		name: "race", what: "the race detector over the product's packages without a cluster, with their long tests: outages of brokers and receivers", estimate: 19 * time.Minute, lane: serversLane, product: true, files: pages,
		jobs: func(m *module) []job {
			_, own := m.groups()
			raced := job{Name: "with the race detector", Env: release, Race: true, Args: []string{"-p", "2"}, Packages: slowestFirst(ofProduct(own))}
			return append([]job{raced}, longTests(m, "scripts")...)
		},
	},
	{
		name: "databases", what: "every control-plane test on PostgreSQL", estimate: 10 * time.Minute, lane: serversLane, files: pages,
		jobs: func(m *module) []job {
			return []job{{
				Name: "on PostgreSQL", Env: []string{"PIPEOPS_TEST_DATABASE=postgres"}, Args: []string{"-p", "1"},
				Packages: m.below("internal/controlplane", "cmd/controlplane"),
			}}
		},
	},
	{
		name: "hostile", what: "100 000 hostile connections to a control plane's listeners, 10 000 to the gateway; attackers of the whole system", estimate: 7 * time.Minute, lane: serversLane, product: true,
		jobs: func(m *module) []job {
			return []job{
				{Name: "hostile connections", Env: append([]string{"PIPEOPS_TEST_HOSTILE_CONNECTIONS=100000"}, release...), Args: []string{"-p", "1"}, Packages: m.below("test/hostile")},
				{Name: "hostile visitors of the gateway", Env: []string{"PIPEOPS_TEST_HOSTILE_VISITORS=10000"}, Args: []string{"-run", "^TestGateway_MemoryUnderAttack$"}, Packages: []string{modulePath + "/internal/controlplane/gateway"}},
			}
		},
	},
	{
		name: "contract", what: "20 000 generated requests to the Runner API, each response checked against its document", estimate: 7 * time.Minute, lane: serversLane, product: true,
		files: []string{"docs/openapi.json"},
		jobs: func(m *module) []job {
			return []job{{Name: "generated requests", Env: []string{"PIPEOPS_TEST_CONTRACT_REQUESTS=20000"}, Packages: m.below("test/contract")}}
		},
	},
	{
		name: "failures", what: "each failure of workloads, as an App, a set and a release", estimate: 9 * time.Minute, lane: serversLane,
		jobs: func(m *module) []job {
			return []job{{Name: "failures", Env: release, Packages: m.below("test/failures")}}
		},
	},
	{
		name: "machines", what: "the installer's life on Debian 11, 12 and 13; systemd and OpenRC services; self-updates; the charts' further lives", estimate: 13 * time.Minute, lane: machinesLane, product: true, files: pages,
		jobs: func(m *module) []job {
			return []job{{
				Name: "machines", Env: release, Args: []string{"-p", "2"},
				Packages: m.below("test/install", "test/service", "test/selfupdate", "test/machine", "test/chart"),
			}}
		},
	},
	{
		name: "journeys", what: "further journeys end to end: kubectl, replicas, tokens, Traefik, cert-manager, VPA, the documents' commands; the demo; alerts through Prometheus; the pages in Chromium; the documentation's site", estimate: 35 * time.Minute, lane: machinesLane, product: true, files: pages, // 18 where others' programs are compiled
		jobs: func(m *module) []job {
			return longTests(m, "test/e2e", "test/demo", "test/observe", "test/browser", "test/site")
		},
	},
	{
		name: "clusters", what: "the race detector over the product's packages on real parts, with their long tests", estimate: 24 * time.Minute, lane: machinesLane, product: true, files: pages,
		jobs: func(m *module) []job {
			real, _ := m.groups()
			inProcess := slices.DeleteFunc(ofProduct(real), m.isCommandLine)
			return []job{{Name: "real parts with the race detector", Env: release, Race: true, Args: []string{"-p", "2"}, Packages: slowestFirst(inProcess)}}
		},
	},
	{
		name: "chaos", what: "everything fails at random, from fixed seeds", estimate: 15 * time.Minute, lane: aloneLane, product: true, nightly: true,
		jobs: func(m *module) []job {
			return []job{{Name: "chaos", Env: release, Args: []string{"-run", "^TestChaos$", "-count=1"}, Packages: m.below("test/chaos")}}
		},
	},
	{
		name: "fuzz", what: "each fuzz target for " + fuzzTime, estimate: 45 * time.Minute, lane: idleLane, nightly: true,
		jobs: fuzzJobs, atOnce: 6, // a target's time passes while others are compiled
	},
}

// partsNamed returns the parts with these names, in their own order.
func partsNamed(names []string) (named []part, err error) {
	for _, p := range parts {
		if slices.Contains(names, p.name) {
			named = append(named, p)
		}
	}
	if len(named) != len(names) {
		return nil, fmt.Errorf("unknown part in %q: choose from %s", strings.Join(names, " "), partNames)
	}
	return named, nil
}

// leftOut lists what `make test` does not run.
func leftOut(out io.Writer) {
	fmt.Fprintln(out, "\nnot run here, but by `make test-all` (test/README.md lists what no suite runs):")
	for _, p := range parts {
		fmt.Fprintf(out, "  %-10s about %s: %s\n", p.name, p.estimate, p.what)
	}
}

var (
	longTest   = regexp.MustCompile(`\bsuite\.(Release|IsRelease)\(`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
)

// longTests returns a job that runs the tests below some folders which `make test` leaves out, in
// whole or in part, and no others.
func longTests(m *module, folders ...string) []job {
	j := job{Name: strings.Join(folders, " "), Env: release}
	var names []string
	for _, pkg := range m.below(folders...) {
		if of := m.longTestsOf(pkg); len(of) > 0 {
			names, j.Packages = append(names, of...), append(j.Packages, pkg)
		}
	}
	j.Args = []string{"-p", "2", "-run", "^(" + strings.Join(names, "|") + ")$"}
	return []job{j}
}

// longTestsOf returns the tests of a package that ask for the release suite.
func (m *module) longTestsOf(pkg string) (names []string) {
	for _, text := range m.testFiles(pkg) {
		starts := testFunc.FindAllStringSubmatchIndex(text, -1)
		for i, at := range starts {
			end := len(text)
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			if longTest.MatchString(text[at[0]:end]) {
				names = append(names, text[at[2]:at[3]])
			}
		}
	}
	return names
}

// fuzzJobs returns one job for each fuzz target: `go test -fuzz` takes one at a time. A target uses
// one worker, because several jobs run at a time beside other parts, which they must not slow down.
func fuzzJobs(m *module) (jobs []job) {
	for _, pkg := range m.tested() {
		for _, text := range m.testFiles(pkg) {
			for _, found := range fuzzTarget.FindAllStringSubmatch(text, -1) {
				jobs = append(jobs, job{
					Name: short(pkg) + " " + found[1], Packages: []string{pkg}, Nice: 19,
					Args: []string{"-run", "^$", "-fuzz", "^" + found[1] + "$", "-fuzztime", fuzzTime, "-parallel", "1"},
				})
			}
		}
	}
	return jobs
}

// testFiles returns the texts of a package's test files.
func (m *module) testFiles(pkg string) (texts []string) {
	files, _ := filepath.Glob(filepath.Join(m.root, m.dirs[pkg], "*_test.go"))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil { // compiling it fails otherwise, and says why
			texts = append(texts, string(text))
		}
	}
	return texts
}
