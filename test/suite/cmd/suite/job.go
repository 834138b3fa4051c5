package main

import (
	"os"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// packageTimeout ends a package whose tests hang.
const packageTimeout = "40m"

// job is one `go test` command.
type job struct {
	Name     string
	Part     string // of the release suite; empty for others
	Nice     int    // as nice(1) has it
	Dir      string // of a separate module; empty for the repository's
	Race     bool
	Args     []string
	Env      []string
	Packages []string
	Last     []string // arguments after the packages
}

// lane is a queue of jobs. AtOnce of them run at a time.
type lane struct {
	AtOnce int
	Jobs   []job
}

// plan is what a run consists of: stages one after another, the lanes of a stage side by side.
type plan [][]lane

func (p plan) jobs() (all []job) {
	for _, stage := range p {
		for _, l := range stage {
			all = append(all, l.Jobs...)
		}
	}
	return all
}

// beside returns a plan that runs each job in a lane of its own.
func beside(jobs ...job) plan {
	stage := make([]lane, 0, len(jobs))
	for _, j := range jobs {
		stage = append(stage, lane{1, []job{j}})
	}
	return plan{stage}
}

// words returns the command. Vetting is the linters' work.
func (j job) words() []string {
	words := []string{"go", "test", "-json", "-trimpath", "-timeout", packageTimeout, "-vet=off"}
	if j.Race {
		words = append(words, suite.RaceFlags...)
	}
	return slices.Concat(words, j.Args, j.Packages, j.Last)
}

func (j job) environ() []string {
	cgo := "CGO_ENABLED=0"
	if j.Race {
		cgo = "CGO_ENABLED=1" // the race detector needs it
	}
	// The race detector has each process wait a second at its end, for stragglers.
	return append(append(os.Environ(), cgo, "GORACE=atexit_sleep_ms=50"), j.Env...)
}

// selects reports whether a pattern decides which tests run.
func (j job) selects() bool {
	return slices.ContainsFunc(j.Args, func(arg string) bool { return arg == "-run" || arg == "-fuzz" })
}

func (j job) isShort() bool { return slices.Contains(j.Args, "-short") }

// has reports whether the job tests a package.
func (j job) has(pkg string) bool {
	inModule := strings.HasPrefix(pkg, modulePath+"/"+benchModule) == (j.Dir != "")
	return slices.Contains(j.Packages, pkg) || inModule && slices.Contains(j.Packages, "./...")
}

// repeat returns the job that runs one test again.
func (j job) repeat(run, pkg string) job {
	var args []string
	for i := 0; i < len(j.Args); i++ {
		switch j.Args[i] {
		case "-run", "-fuzz", "-fuzztime", "-p":
			i++ // its value
		default:
			args = append(args, j.Args[i])
		}
	}
	args = append(args, "-count=1", run)
	j.Args, j.Packages = args, []string{pkg}
	return j
}

// label returns a package's name in the report. The parts of the release suite test some packages
// twice.
func (j job) label(pkg string) string {
	if j.Part == "" || pkg == "" {
		return pkg
	}
	return pkg + " [" + j.Part + "]"
}
