package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// maxRecord bounds the record that is read.
const maxRecord = 64 << 10

// Dir keeps downloaded releases and the record of them, below the agent's state
// directory. It can be read and written by the agent's user alone.
type Dir string

// In returns the Dir of a state directory.
func In(stateDir string) Dir { return Dir(filepath.Join(stateDir, "update")) }

// Staged is a release whose program is in the Dir.
type Staged struct {
	Version string `json:"version"`
	Offer   string `json:"offer"`
	From    string `json:"from"` // version before
}

// Confirmed is a release that was ready on trial: it is started instead of the installed program.
type Confirmed struct {
	Staged
	// Proven is set once it was ready in its own place too; until then its starts are
	// counted.
	Proven bool `json:"proven"`
	Starts int  `json:"starts"`
}

// Failed is the last release that was given up, and why.
type Failed struct {
	Staged
	Reason string `json:"reason"`
}

// Record is stored and outlives the agent. Trial is set while a release is on trial; if it is set
// at a start, the trial was interrupted.
type Record struct {
	Confirmed *Confirmed `json:"confirmed,omitempty"`
	Previous  *Confirmed `json:"previous,omitempty"` // what Confirmed took the place of
	Trial     *Staged    `json:"trial,omitempty"`
	// CutOff is the last release whose trial was cut off: once may be a power cut, twice
	// it is the release.
	CutOff *Staged `json:"cutOff,omitempty"`
	Failed *Failed `json:"failed,omitempty"`
}

// Confirm makes a release that was ready on trial be started from now on.
func (r *Record) Confirm(s Staged) {
	r.Confirmed, r.Previous = &Confirmed{Staged: s}, r.Confirmed
	r.Trial, r.CutOff, r.Failed = nil, nil, nil
}

// Interrupt records at a start that a trial was interrupted, if there was one.
func (r *Record) Interrupt() {
	switch {
	case r.Trial == nil:
	case r.CutOff != nil && *r.CutOff == *r.Trial:
		r.Fail(*r.Trial, "twice the agent ended while "+r.Trial.Version+" was on trial beside it")
	default:
		r.Trial, r.CutOff = nil, r.Trial
	}
}

// Prove records that a confirmed release is ready in its own place.
func (r *Record) Prove(s Staged) {
	if r.Confirmed != nil && r.Confirmed.Staged == s {
		r.Confirmed.Proven, r.Previous = true, nil
	}
}

// Fail gives a release up: the previous one is started from now on.
func (r *Record) Fail(s Staged, reason string) {
	r.Failed, r.Trial, r.CutOff = &Failed{Staged: s, Reason: reason}, nil, nil
	if r.Confirmed != nil && r.Confirmed.Staged == s {
		r.Confirmed, r.Previous = r.Previous, nil
	}
}

func (d Dir) file(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

func (d Dir) recordFile() string { return d.file("record.json") }

// Load reads the record; there need not be one.
func (d Dir) Load() (Record, error) {
	var r Record
	text, err := boundedfile.Read(d.recordFile(), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return Record{}, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("%s is damaged: %w (fix: remove it; the installed program is used then)", d.recordFile(), err)
	}
	if err := r.check(); err != nil {
		return Record{}, err
	}
	return r, nil
}

// check refuses what would lead out of the Dir.
func (r *Record) check() error {
	var staged []Staged
	for _, c := range []*Confirmed{r.Confirmed, r.Previous} {
		if c != nil {
			staged = append(staged, c.Staged)
		}
	}
	if r.Trial != nil {
		staged = append(staged, *r.Trial)
	}
	for _, s := range staged {
		if !release.ValidVersion(s.Version) {
			return fmt.Errorf("the record of updates names the version %q", s.Version)
		}
	}
	return nil
}

// Save writes a new record and moves it into place, so that a crash leaves the old
// one or the new one.
func (d Dir) Save(r Record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(d.recordFile(), text)
}

// Change reads the record, changes it and saves it.
func (d Dir) Change(change func(*Record)) error {
	r, err := d.Load()
	if err != nil {
		return err
	}
	change(&r)
	return d.Save(r)
}
