package castore

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// followEvery is how often a control plane checks whether a command changed the CA, which reads
	// a file of some kilobytes. A CA in the database reports changes itself; followAnyway is the
	// interval in case such a report was lost.
	followEvery  = time.Second
	followAnyway = 15 * time.Second
	// warnEvery is how often a CA that expires is warned of.
	warnEvery = 24 * time.Hour
	// WarnBefore is how long before its end that begins.
	WarnBefore = 180 * 24 * time.Hour
)

// Upkeep follows the changes of the CA, and renews what is due.
type Upkeep struct {
	CA   *ca.CA
	Data datadir.Data
	Log  zerolog.Logger
	Now  func() time.Time
	// Changed is called when a command has changed the CA.
	Changed func(ctx context.Context)

	wake  wake.Signal // a command may have changed the CA
	trust []byte      // as it was written last
}

// NewUpkeep returns what keeps a CA usable.
func NewUpkeep(u Upkeep) *Upkeep {
	u.wake = wake.New()
	return &u
}

// Run applies the changes that commands make to the CA, and warns before it expires.
func (u *Upkeep) Run(ctx context.Context) error {
	var said, failed string
	var warned time.Time
	for ctx.Err() == nil {
		changed, err := u.CA.Reload()
		switch {
		case err != nil && err.Error() != said:
			u.Log.Error().Err(err).Msg("failed to reload the CA; using the previous one")
		case err == nil && changed:
			u.Log.Info().Str("stage", string(u.CA.Stage())).Str("signs", controlapi.Fingerprint(u.CA.Certificate())).Msg("the CA changed")
			u.Changed(ctx)
		}
		if said = ""; err != nil {
			said = err.Error()
		}
		if now := u.Now(); now.Sub(warned) >= warnEvery {
			warned = now
			u.warnOfEnd(now)
		}
		u.renewIntermediates(&failed)
		if err := u.writeTrust(); err != nil {
			u.Log.Warn().Err(err).Msg("failed to write the CA's certificates; retrying")
		}
		u.await(ctx)
	}
	return nil
}

// await waits until it is time to check the CA again.
func (u *Upkeep) await(ctx context.Context) {
	if !u.Data.Shared() {
		retry.Wait(ctx, followEvery)
		return
	}
	u.wake.WaitFor(ctx, followAnyway)
}

// Look makes run check the CA soon.
func (u *Upkeep) Look() {
	u.wake.Raise()
}

func (u *Upkeep) warnOfEnd(now time.Time) {
	if end := u.CA.Certificate().NotAfter; now.Add(WarnBefore).After(end) {
		u.Log.Warn().Time("notAfter", end).Str("fix", "pipeops-controlplane ca rotate start").
			Msg("the CA expires soon, and with it all certificates: rotate it")
	}
	if _, err := u.CA.UpkeepDue(); err != nil {
		u.Log.Warn().Err(err).Time("notAfter", u.CA.IntermediatesEnd()).Str("fix", "pipeops-controlplane ca root import FILE").
			Msg("intermediate CAs expire soon, and with them all certificates")
	}
}

// writeTrust writes the certificates of a CA that is in the database to the data directory.
func (u *Upkeep) writeTrust() error {
	bundle := u.CA.Bundle()
	if !u.Data.Shared() || bytes.Equal(bundle, u.trust) {
		return nil
	}
	err := atomicfile.Write(filepath.Join(u.Data.Dir, datadir.FileTrust), bundle)
	if err == nil {
		u.trust = bundle
	}
	return err
}

// Ready makes sure that there are intermediate CAs for the control plane's domains, and that
// commands in its data directory can verify it.
func (u *Upkeep) Ready() error {
	return errors.Join(u.ready(), u.writeTrust())
}

func (u *Upkeep) ready() error {
	due, err := u.CA.UpkeepDue()
	switch {
	case err != nil && u.CA.ForDomains():
		return nil // there is time: warnOfEnd says so
	case err != nil || !due:
		return err
	}
	return u.renew()
}

// renewIntermediates replaces intermediate CAs in time. Where the root's key is away, warnOfEnd
// says so.
func (u *Upkeep) renewIntermediates(failed *string) {
	due, err := u.CA.UpkeepDue()
	if !due || err != nil {
		return
	}
	err = u.renew()
	if err == nil {
		*failed = ""
		u.Log.Info().Time("notAfter", u.CA.IntermediatesEnd()).Msg("renewed the intermediate CAs")
		return
	}
	if err.Error() != *failed {
		*failed = err.Error()
		u.Log.Error().Err(err).Msg("failed to renew the intermediate CAs; retrying")
	}
}

func (u *Upkeep) renew() (err error) {
	lock, err := u.Data.LockCA()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	_, err = u.CA.Upkeep()
	return err
}
