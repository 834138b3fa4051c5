// Package launch starts the right program of an agent that is a service of a machine,
// where its customer lets it update itself. The service manager always starts the
// installed program. Where a newer release was tried and confirmed, that one verifies
// it once more and becomes it: the same process goes on as another program, so that
// systemd and OpenRC see nothing of it.
//
// A release is tried beside the agent that runs (Trial), and after it has taken its
// place it has to be ready again before it counts as proven. Until then its starts are
// counted, and after some that came to nothing the version before is started.
package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// What the environment tells a program that is not the installed one. It holds for
// the process and whatever it becomes.
const (
	envLaunched = "PIPEOPS_UPDATE_LAUNCHED" // the version that it was started as
	envTrial    = "PIPEOPS_UPDATE_TRIAL"    // the version that it is on trial as
	// envInstalled is the installed program, which the service manager started.
	envInstalled = "PIPEOPS_UPDATE_INSTALLED"
)

// maxStarts is how often a release that is not proven yet is started.
const maxStarts = 3

// OnTrial says whether this process is a release on trial, and as which version.
func OnTrial() (version string, yes bool) {
	version = os.Getenv(envTrial)
	return version, version != ""
}

// Launcher decides at the start of the agent.
type Launcher struct {
	Dir     Dir
	Version string // of this program
	Keys    []release.PublicKey
}

// Start finds out which program is to run. It answers the path of another one and the
// version as which it is to be started, or none when this one is right. note is what
// an operator should read in the log.
func (l Launcher) Start() (path, version, note string, err error) {
	r, err := l.Dir.Load()
	if err != nil {
		return "", "", "", err
	}
	r.Interrupt()
	launched := os.Getenv(envLaunched)
	if launched != "" && launched != l.Version {
		// The program says that it is another one than was signed for: no second try.
		if r.Confirmed != nil && r.Confirmed.Version == launched {
			r.Fail(r.Confirmed.Staged, "the program that was released as "+launched+" says that it is "+l.Version)
		}
		return "", "", "", l.save(r, fmt.Errorf("this program is %s, not %s", l.Version, launched))
	}
	path, note = l.choose(&r)
	if path != "" {
		version = r.Confirmed.Version
	}
	return path, version, note, l.save(r, nil)
}

// choose is the newest confirmed program that is sound, if it is newer than this one:
// whoever installs a newer one by hand wants that.
func (l Launcher) choose(r *Record) (path, note string) {
	var notes []string
	for r.Confirmed != nil {
		c := r.Confirmed
		if semver.Compare(c.Version, l.Version) <= 0 {
			if c.Version != l.Version || os.Getenv(envLaunched) == "" {
				r.Confirmed, r.Previous = nil, nil // the installed one has caught up
			}
			return "", strings.Join(notes, "; ")
		}
		if !c.Proven && c.Starts >= maxStarts {
			r.Fail(c.Staged, fmt.Sprintf("it was ready on trial, but not in its own place: %d starts came to nothing", c.Starts))
			continue
		}
		path, err := l.Dir.Verified(c.Version, l.Keys)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is not started: %v", c.Version, err))
			r.Fail(c.Staged, fmt.Sprintf("its program was not started any more: %v", err))
			continue
		}
		if !c.Proven {
			c.Starts++
		}
		return path, strings.Join(notes, "; ")
	}
	return "", strings.Join(notes, "; ")
}

func (l Launcher) save(r Record, err error) error {
	keep := []string{l.Version}
	for _, c := range []*Confirmed{r.Confirmed, r.Previous} {
		if c != nil {
			keep = append(keep, c.Version)
		}
	}
	if r == (Record{}) {
		if _, missing := os.Stat(l.Dir.recordFile()); missing != nil {
			return err // nothing was, nothing is
		}
	}
	if saved := l.Dir.Save(r); saved != nil {
		return saved
	}
	if kept := l.Dir.Keep(keep...); kept != nil {
		return kept
	}
	return err
}

// Launched says whether this process is a confirmed release in its own place.
func Launched() bool { return os.Getenv(envLaunched) != "" }

// Become goes on as another program, with the same arguments. It answers only when
// that is not possible.
func Become(path, version string) error {
	self, err := installed()
	if err != nil {
		return err
	}
	return become(path, environ(envLaunched+"="+version, envInstalled+"="+self))
}

// Again starts the installed program anew, which finds out which one is to run.
func Again() error {
	self, err := installed()
	if err != nil {
		return err
	}
	return become(self, environ())
}

func installed() (string, error) {
	if path := os.Getenv(envInstalled); path != "" {
		return path, nil
	}
	return os.Executable()
}

// environ is this process' environment without what tells programs apart, and with
// more.
func environ(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == envLaunched || name == envTrial || name == envInstalled
	})
	return append(env, more...)
}
