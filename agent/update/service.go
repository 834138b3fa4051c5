package update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/launch"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// maxProgram bounds what is downloaded, in bytes: some five times the agent.
const maxProgram = 512 << 20

// Service is the Target of an agent that is a service of a machine: its program. A new
// one is tried beside the agent, which keeps serving; then the agent ends, and the
// installed program becomes the new one at this and at each later start.
type Service struct {
	Dir      launch.Dir
	Version  string // that runs
	Trust    release.Trust
	Deadline time.Duration
	Download Download
	// Ready returns what this agent itself waits for.
	Ready func(context.Context) error
	// Stderr gets the log of a program on trial.
	Stderr  io.Writer
	Now     func() time.Time
	Started time.Time
}

var _ Target = Service{}

// Fits implements Target.
func (s Service) Fits(m *release.Manifest) error {
	file, ok := launch.Program(m)
	switch {
	case !launch.Supported:
		return refuse("system: an agent on %s does not update itself", runtime.GOOS)
	case !ok:
		return refuse("program: the release has none for %s/%s", runtime.GOOS, runtime.GOARCH)
	case file.Size > maxProgram:
		return refuse("size: %s has %d bytes, more than %d", file.Name, file.Size, maxProgram)
	}
	return nil
}

// Recall implements Target.
func (s Service) Recall(context.Context) (Record, error) {
	kept, err := s.Dir.Load()
	if err != nil {
		return Record{}, err
	}
	current := kept.Confirmed != nil && kept.Confirmed.Version == s.Version && launch.Launched()
	switch {
	case current && !kept.Confirmed.Proven:
		return recordOf(kept.Confirmed.Staged, controlapi.UpdateUpdating, ""), nil
	case kept.Failed != nil:
		return recordOf(kept.Failed.Staged, controlapi.UpdateFailed, kept.Failed.Reason), nil
	case current:
		return recordOf(kept.Confirmed.Staged, controlapi.UpdateDone, ""), nil
	}
	return Record{}, nil
}

func recordOf(s launch.Staged, state controlapi.UpdateState, reason string) Record {
	return Record{State: state, Offer: s.Offer, From: s.From, To: s.Version, Reason: reason}
}

// Try implements Target.
func (s Service) Try(ctx context.Context, c Candidate) error {
	c.Began()
	version := c.Manifest.Version
	path, err := s.Dir.Verified(version, s.Trust)
	if err != nil { // not there yet, as a rule
		if err := s.stage(ctx, c); err != nil {
			return err
		}
		if path, err = s.Dir.Verified(version, s.Trust); err != nil {
			return err
		}
	}
	if err := c.Still(); err != nil {
		return err
	}
	staged := launch.Staged{Version: version, Offer: c.Offer.ID, From: c.From}
	if err := s.Dir.Change(func(r *launch.Record) { r.Trial = &staged }); err != nil {
		return err
	}
	trial := launch.Trial{Dir: s.Dir, Path: path, Version: version, Deadline: s.Deadline, Stderr: s.Stderr}
	failure := trial.Run(ctx)
	switch {
	case ctx.Err() != nil: // nothing is known of it: the next agent tries again
		return errors.Join(ctx.Err(), s.Dir.Change(func(r *launch.Record) { r.Trial = nil }))
	case errors.Is(failure, launch.ErrNotBegun):
		return errors.Join(failure, s.Dir.Change(func(r *launch.Record) { r.Trial = nil }))
	case failure != nil:
		return s.Dir.Change(func(r *launch.Record) { r.Fail(staged, controlapi.ClipReason(failure.Error())) })
	}
	if err := s.Dir.Change(func(r *launch.Record) { r.Confirm(staged) }); err != nil {
		return err
	}
	return ErrRelaunch
}

// stage downloads the program.
func (s Service) stage(ctx context.Context, c Candidate) error {
	file, _ := launch.Program(c.Manifest)
	body, done, err := s.Download.Open(ctx, c, file)
	if err != nil {
		return err
	}
	defer done()
	err = s.Dir.Stage(c.Manifest, c.Offer.Manifest, c.Offer.Signature, body)
	switch {
	case errors.Is(err, launch.ErrTampered):
		_ = s.Download.hide(file.Name, err)
		return refuse("digest: what was downloaded is not the %s that was signed (the agent's log says more)", file.Name)
	case err != nil:
		return s.Download.hide(file.Name, err)
	}
	return nil
}

// Watch implements Target: this agent is the new version, in its own place, and has
// to be ready there too. If it is not, the version before is started.
func (s Service) Watch(ctx context.Context, r Record) error {
	staged := launch.Staged{Version: r.To, Offer: r.Offer, From: r.From}
	missing := s.Ready(ctx)
	switch {
	case missing == nil:
		return s.Dir.Change(func(r *launch.Record) { r.Prove(staged) })
	case s.Now().Before(s.Started.Add(s.Deadline)):
		return nil
	}
	reason := controlapi.ClipReason(fmt.Sprintf("it was ready on trial, but not in its own place within %s: %v", s.Deadline, missing))
	if err := s.Dir.Change(func(r *launch.Record) { r.Fail(staged, reason) }); err != nil {
		return err
	}
	return ErrRelaunch
}
