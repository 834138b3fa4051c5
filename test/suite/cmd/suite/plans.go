package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// benchModule is a separate module, for what only the benchmark needs.
const benchModule = "test/bench/peers"

// release makes the tests run that are only in the release suite.
var release = []string{suite.Variable + "=" + suite.All}

// slow are the packages that take longest, in this order. They start first, so that none is alone
// at the end.
var slow = []string{
	"internal/controlplane", "cmd/runner/command", "internal/app", "cmd/controlplane/command", "internal/helm", "agent",
	"test/e2e", "runnerapi/server", "internal/build", "internal/manifests", "internal/controlplane/store",
	"internal/components", "internal/controlplane/gateway", "internal/kube", "test/install", "scripts/install",
	"test/chart", "internal/health", "runnerapi/announce", "test/suite/cmd/suite", "tunnel/server", "internal/render",
	"test/contract", "internal/source",
}

// testPlan is what a change must pass. Most tests on clusters and machines wait more than they
// compute, so two such packages run beside two others.
func testPlan(m *module) plan {
	real, own := m.groups()
	clusters := slices.DeleteFunc(slices.Clone(real), m.isCommandLine)
	others := slices.Concat(own, slices.DeleteFunc(real, func(pkg string) bool { return !m.isCommandLine(pkg) }))
	return beside(
		job{Name: "clusters and machines", Args: []string{"-p", "2"}, Packages: slowestFirst(clusters)},
		job{Name: "other packages", Args: []string{"-p", "2"}, Packages: slowestFirst(others)},
		job{Name: "the benchmark's module", Dir: benchModule, Packages: []string{"./..."}},
	)
}

// shortPlan needs neither a cluster nor a server.
func shortPlan() plan {
	return beside(
		job{Name: "short tests", Args: []string{"-short"}, Packages: []string{"./..."}},
		job{Name: "the benchmark's module", Dir: benchModule, Args: []string{"-short"}, Packages: []string{"./..."}},
	)
}

// racePlan is the short tests with the race detector.
func racePlan(m *module) plan {
	real, own := m.groups()
	return beside(job{Name: "short tests with the race detector", Race: true, Args: []string{"-short"}, Packages: append(own, ofProduct(real)...)})
}

// allPlan is what a release must pass: first the packages whose tests no part runs whole, then the
// parts.
func allPlan(m *module) plan {
	whole := map[string]bool{}
	for _, p := range parts {
		for _, j := range p.jobs(m) {
			for _, pkg := range j.Packages {
				whole[pkg] = whole[pkg] || p.name != "databases" && !j.selects()
			}
		}
	}
	var before []job
	for _, j := range testPlan(m).jobs() {
		j.Packages = slices.DeleteFunc(j.Packages, func(pkg string) bool { return whole[pkg] })
		if len(j.Packages) > 0 {
			before = append(before, j)
		}
	}
	return append(beside(before...), partsPlan(m, parts)...)
}

// partsPlan runs parts in their lanes side by side, and those that run alone afterwards.
func partsPlan(m *module, chosen []part) (p plan) {
	lanes := make([]lane, aloneLane+1)
	for _, part := range chosen {
		l := &lanes[part.lane]
		l.AtOnce = max(l.AtOnce, part.atOnce, 1)
		for _, j := range part.jobs(m) {
			j.Part = part.name
			l.Jobs = append(l.Jobs, j)
		}
	}
	for _, stage := range [][]lane{lanes[:aloneLane], lanes[aloneLane:]} {
		if stage = slices.DeleteFunc(stage, func(l lane) bool { return len(l.Jobs) == 0 }); len(stage) > 0 {
			p = append(p, stage)
		}
	}
	return p
}

func slowestFirst(pkgs []string) []string {
	place := func(pkg string) int {
		if i := slices.Index(slow, short(pkg)); i >= 0 {
			return i
		}
		return len(slow)
	}
	return slices.SortedStableFunc(slices.Values(pkgs), func(a, b string) int { return cmp.Compare(place(a), place(b)) })
}

// realParts are the packages whose tests bring up a cluster, a machine, or the whole system, or
// render in a child process.
var realParts = []string{
	"/test/kubetest", "/test/cluster", "/test/machine", "/test/harness", "/test/buildkit", "/test/rendertest",
}

// usesRealParts reports whether a package's tests import one of them, or run a command line, which
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

// ofProduct leaves out the packages of tests, scripts and documents: what they test runs in other
// processes.
func ofProduct(pkgs []string) []string {
	return slices.DeleteFunc(pkgs, func(p string) bool {
		top, _, _ := strings.Cut(short(p), "/")
		return slices.Contains([]string{"test", "scripts", "docs"}, top)
	})
}
