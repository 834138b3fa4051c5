package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// part is a piece of the release suite that `make test` leaves out.
type part struct {
	name, what string
	estimate   time.Duration // on two cores, with everything compiled, beside the other lanes
	lane       string        // machines, servers, idle (the time that the others leave), or alone, when the others have ended
	jobs       func(*module) []job
	nightly    bool     // too long for a change: `make test-all` and `make test-part` run it
	inputs     []string // of its tests as well: programs, files, and folders with all that is below
}

// product is what tests run that start the product's programs, scripts, charts and units.
var product = []string{"cmd/agent", "cmd/controlplane", "cmd/runner", "scripts", "deployments", "Dockerfile"}

// withPages are the inputs of tests that run the documents' commands, too.
var withPages = append([]string{"docs", "README.md"}, product...)

// parts are in the order in which a change should hear of a failure. The estimates are rather long
// than short, because CI starts only what fits into its hour.
var parts = []part{
	{
		name: "race", what: "the race detector over the product's packages without a cluster, with their long tests: outages of brokers and receivers; releases", estimate: 19 * time.Minute, lane: "servers", inputs: withPages,
		jobs: func(m *module) []job {
			raced := job{Env: release, Race: true, First: []string{"-p", "2"}, Packages: ofProduct(m.of(own))}
			return append(longJobs(m, "scripts"), raced)
		},
	},
	{
		name: "databases", what: "every control-plane test on PostgreSQL", estimate: 10 * time.Minute, lane: "servers", inputs: withPages[:2],
		jobs: func(m *module) []job {
			return []job{{Env: []string{"PIPEOPS_TEST_DATABASE=postgres"}, First: []string{"-p", "1"}, Packages: m.below("internal/controlplane", "cmd/controlplane")}}
		},
	},
	{
		name: "hostile", what: "100 000 hostile connections to a control plane's listeners, 10 000 to the gateway; attackers of the whole system", estimate: 7 * time.Minute, lane: "servers", inputs: product,
		jobs: func(m *module) []job {
			return []job{
				{Env: append([]string{"PIPEOPS_TEST_HOSTILE_CONNECTIONS=100000"}, release...), First: []string{"-p", "1"}, Packages: m.below("test/hostile")},
				{Env: []string{"PIPEOPS_TEST_HOSTILE_VISITORS=10000"}, First: []string{"-run", "^TestGateway_MemoryUnderAttack$"}, Packages: []string{modulePath + "/internal/controlplane/gateway"}},
			}
		},
	},
	{
		name: "contract", what: "20 000 generated requests to the Runner API, each response checked against its document; types for clients, generated from the documents", estimate: 7 * time.Minute, lane: "servers", inputs: append([]string{"docs"}, product...),
		jobs: func(m *module) []job {
			return append(longJobs(m, "test/contract"), job{Env: []string{"PIPEOPS_TEST_CONTRACT_REQUESTS=20000"}, Packages: m.below("test/contract")})
		},
	},
	{
		name: "failures", what: "each failure of workloads, as an App, a set and a release", estimate: 9 * time.Minute, lane: "servers",
		jobs: func(m *module) []job { return []job{{Env: release, Packages: m.below("test/failures")}} },
	},
	{
		name: "pressure", what: "the agent with its shipped memory beside the largest Apps, sets, sources and releases, and popular charts, before and after a restart", estimate: 10 * time.Minute, lane: "machines", inputs: product,
		jobs: func(m *module) []job { return []job{{Env: release, Packages: m.below("test/pressure")}} },
	},
	{
		name: "machines", what: "the installer's life on Debian 11, 12 and 13; systemd and OpenRC services; self-updates; the charts' further lives", estimate: 13 * time.Minute, lane: "machines", inputs: withPages,
		jobs: func(m *module) []job {
			return []job{{Env: release, First: []string{"-p", "2"}, Packages: m.below("test/install", "test/service", "test/selfupdate", "test/machine", "test/chart")}}
		},
	},
	{
		name: "journeys", what: "further journeys end to end: kubectl, disruptions, replicas, tokens, Traefik, cert-manager, VPA, the documents' commands; the demo; lives of test clusters; alerts through Prometheus; the pages in Chromium; the documentation's site", estimate: 35 * time.Minute, lane: "machines", inputs: withPages, // 18 where others' programs are compiled
		jobs: func(m *module) []job {
			return longJobs(m, "test/e2e", "test/demo", "test/observe", "test/browser", "test/site")
		},
	},
	{
		name: "clusters", what: "the race detector over the product's packages on real parts, with their long tests", estimate: 24 * time.Minute, lane: "machines", inputs: withPages,
		jobs: func(m *module) []job {
			return []job{{Env: release, Race: true, First: []string{"-p", "2"}, Packages: ofProduct(m.of(clusters))}}
		},
	},
	{
		name: "terraform", what: "the provider for Terraform, by OpenTofu and a whole cluster", estimate: 9 * time.Minute, lane: "machines", inputs: []string{provider}, // one where OpenTofu is compiled
		jobs: func(m *module) []job {
			return []job{{Env: release, Dir: provider, Packages: m.below(provider)}}
		},
	},
	{
		name: "chaos", what: "everything fails at random, from fixed seeds", estimate: 15 * time.Minute, lane: "alone", inputs: product, nightly: true,
		jobs: func(m *module) []job {
			return []job{{Env: release, First: []string{"-count=1", "-run", "^TestChaos$"}, Packages: m.below("test/chaos")}}
		},
	},
	{name: "fuzz", what: "each fuzz target for 30 s", estimate: 45 * time.Minute, lane: "idle", nightly: true, jobs: fuzzJobs},
}

// longJobs runs the tests below some folders which `make test` leaves out, in whole or in part, and
// no others.
func longJobs(m *module, folders ...string) []job {
	j := job{Env: release}
	var names []string
	for _, pkg := range m.below(folders...) {
		if of := longTests(pkg); len(of) > 0 {
			names, j.Packages = append(names, of...), append(j.Packages, pkg)
		}
	}
	j.First = []string{"-p", "2", "-run", "^(" + strings.Join(names, "|") + ")$"}
	return []job{j}
}

// fuzzJobs returns one job for each fuzz target: `go test -fuzz` takes one at a time. A target uses
// one worker, and six run at a time: a target's time passes while others are compiled. By default,
// Go spends a minute on making each new input smaller: here that would be all of the time.
func fuzzJobs(m *module) (jobs []job) {
	for _, pkg := range m.tested {
		for _, name := range slices.Sorted(maps.Keys(functions(pkg))) {
			if strings.HasPrefix(name, "Fuzz") {
				jobs = append(jobs, job{
					Lane: fmt.Sprint("idle", len(jobs)%6), Env: []string{"nice", "-n", "19"}, Packages: []string{pkg},
					First: []string{"-run", "^$", "-fuzz", "^" + name + "$", "-fuzztime", "30s", "-fuzzminimizetime", "1x", "-parallel", "1"},
				})
			}
		}
	}
	return jobs
}
