// Package launch starts the right program of an agent that runs as a service of a machine, if its
// owner lets it update itself. The service manager always starts the installed program. If a newer
// release was tried and confirmed, the installed program verifies it again and becomes it. The same
// process continues as another program, so that systemd and OpenRC notice nothing.
//
// A release is tried beside the running agent (Trial). After it has taken the agent's place, it
// must become ready again before it counts as proven. Until then its starts are counted, and after
// some failed ones the previous version is started.
package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// The environment variables of a program that is not the installed one. They hold for the process
// and every program that it becomes.
const (
	envLaunched = "PIPEOPS_UPDATE_LAUNCHED" // the version that it was started as
	envTrial    = "PIPEOPS_UPDATE_TRIAL"    // the version that it is on trial as
	// envInstalled is the installed program, which the service manager started.
	envInstalled = "PIPEOPS_UPDATE_INSTALLED"
)

// maxStarts is how often a release that is not proven yet is started.
const maxStarts = 3

// OnTrial reports whether this process is a release on trial, and returns its version.
func OnTrial() (version string, yes bool) {
	version = os.Getenv(envTrial)
	return version, version != ""
}

// Launcher decides at the start of the agent which program runs.
type Launcher struct {
	Dir     Dir
	Version string // of this program
	Trust   release.Trust
}

// Start decides which program is to run. It returns the path of another program and the version as
// which it is to be started, or nothing if this program is right. note is a message for the
// operator's log.
func (l Launcher) Start() (path, version, note string, err error) {
	r, err := l.Dir.Load()
	if err != nil {
		return "", "", "", err
	}
	r.Interrupt()
	launched := os.Getenv(envLaunched)
	if launched != "" && launched != l.Version {
		// The program reports another version than the signed one: no second try.
		if r.Confirmed != nil && r.Confirmed.Version == launched {
			r.Fail(r.Confirmed.Staged, "the program that was released as "+launched+" says that it is "+l.Version)
		}
		return "", "", "", l.save(r, fmt.Errorf("this program is %s, not %s", l.Version, launched))
	}
	path, note = l.choose(&r)
	if path != "" {
		version = r.Confirmed.Version
	}
	if err := l.save(r, nil); err != nil { // the start would not be counted
		return "", "", note, err
	}
	return path, version, note, nil
}

// choose returns the newest confirmed program that is valid, if it is newer than this one. An
// operator who installs a newer one by hand wants that one.
func (l Launcher) choose(r *Record) (path, note string) {
	var notes []string
	for r.Confirmed != nil {
		c := r.Confirmed
		if semver.Compare(c.Version, l.Version) <= 0 {
			if c.Version != l.Version || os.Getenv(envLaunched) == "" {
				r.Confirmed, r.Previous = nil, nil // the installed one is as new
			}
			return "", strings.Join(notes, "; ")
		}
		if !c.Proven && c.Starts >= maxStarts {
			r.Fail(c.Staged, fmt.Sprintf("it was ready on trial, but not in its own place: %d starts came to nothing", c.Starts))
			continue
		}
		path, err := l.Dir.Verified(c.Version, l.Trust)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is not started: %v", c.Version, err))
			r.Fail(c.Staged, fmt.Sprintf("its program was no longer started: %v", err))
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
			return err // there was none
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

// Launched reports whether this process is a confirmed release in its own place.
func Launched() bool { return os.Getenv(envLaunched) != "" }

// Become continues as another program, with the same arguments. It returns only on failure.
func Become(path, version string) error {
	self, err := installed()
	if err != nil {
		return err
	}
	return execute(path, environ(envLaunched+"="+version, envInstalled+"="+self))
}

// Again starts the installed program again, which decides which one is to run.
func Again() error {
	self, err := installed()
	if err != nil {
		return err
	}
	return execute(self, environ())
}

func installed() (string, error) {
	if path := os.Getenv(envInstalled); path != "" {
		return path, nil
	}
	return os.Executable()
}

// environ returns this process' environment without the variables of this package, plus more.
func environ(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == envLaunched || name == envTrial || name == envInstalled
	})
	return append(env, more...)
}
