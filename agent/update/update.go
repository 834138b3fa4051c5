// Package update updates the agent to a release that the control plane offers, if the cluster owner
// has enabled that. It decides which offers are taken, and when, and records their results. A
// Target puts one version in place of another: the pods of a Deployment, or the program of a
// service.
package update

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// lookEvery is how often what was noted of the last try is read, and the clock
	// held against the window.
	lookEvery = 30 * time.Second
	// watchEvery is the same while a version is on trial.
	watchEvery = time.Second
	// retryEvery is how often what could not be downloaded is tried again.
	retryEvery = 5 * time.Minute
	// busyEvery is the same for what is in the way now and will pass by itself.
	busyEvery = 5 * time.Second
)

// errBusy is that of a Target that is in the middle of another change.
var errBusy = errors.New("the agent is in the middle of another change")

// errOver is that of a try for which the time is over, or the offer.
var errOver = errors.New("this is not to be tried any more")

// ErrRelaunch ends an agent whose program must be restarted, because the next one is in place.
var ErrRelaunch = errors.New("the program is to be restarted")

// Record is the stored record of the last try. It outlives the agent.
type Record struct {
	State     controlapi.UpdateState `json:"state"` // updating, done or failed; empty when there was none
	Offer     string                 `json:"offer,omitempty"`
	From      string                 `json:"from,omitempty"`
	To        string                 `json:"to,omitempty"`
	Reason    string                 `json:"reason,omitempty"`
	FromImage string                 `json:"fromImage,omitempty"`
	ToImage   string                 `json:"toImage,omitempty"`
	Deadline  time.Time              `json:"deadline,omitzero"`
}

// Candidate is a release that the rules allow.
type Candidate struct {
	Offer    *controlapi.Offer
	Manifest *release.Manifest
	From     string // version that runs
	// Began reports to the control plane that nothing prevents the update.
	Began func()
	// Still is called after long operations, before a version is tried: it returns an error if the
	// update must not go on.
	Still func() error
}

// Target puts one version in place of another.
type Target interface {
	// Fits refuses a release that has nothing for this target.
	Fits(m *release.Manifest) error
	// Recall reads how the last try stands.
	Recall(ctx context.Context) (Record, error)
	// Try begins with a version. Once it has returned nil, Recall returns the progress; a slow one
	// calls Began. A RefusedError is final for the offer, ErrRelaunch ends the agent, and any other
	// error is retried.
	Try(ctx context.Context, c Candidate) error
	// Watch looks at a try that is in progress, and ends it if it is time. ErrRelaunch ends
	// the agent, after any other error it is called again.
	Watch(ctx context.Context, r Record) error
}

// Config configures an Updater.
type Config struct {
	Rules  Rules
	Target Target
	Now    func() time.Time
	// Leads reports whether this replica is to begin anything. All watch.
	Leads func() bool
	// Changed is called when there is news for the control plane.
	Changed func()
	Log     zerolog.Logger
}

// Updater takes offers from the heartbeat and carries them out.
type Updater struct {
	cfg  Config
	news wake.Signal

	mu     sync.Mutex
	heard  bool // whether anything is offered
	offer  *controlapi.Offer
	status controlapi.Update
	// refused is the offer that the target would not take, and why.
	refused, refusal string
	// retry is the offer that could not be tried, why, and when it is tried again.
	retry, retryReason string
	retryAt            time.Time
}

// New returns an Updater.
func New(cfg Config) *Updater {
	return &Updater{cfg: cfg, news: wake.New(), status: controlapi.Update{State: controlapi.UpdateIdle}}
}

// Offered receives the offer in the last heartbeat's answer: nil if there is no offer, and without
// content if it is the same as before.
func (u *Updater) Offered(offer *controlapi.Offer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if offer != nil && len(offer.Manifest) == 0 && (u.offer == nil || u.offer.ID == offer.ID) {
		return // or it was dropped since that heartbeat: the next one is answered in full
	}
	if offer == nil && u.offer == nil && u.heard {
		return
	}
	u.heard, u.offer, u.retryAt = true, offer, time.Time{}
	u.news.Raise()
}

// Status returns the status for the heartbeat.
func (u *Updater) Status() controlapi.Update {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.status
	if u.offer != nil {
		s.Offer = u.offer.ID
	}
	return s
}

// Run carries out offers until ctx ends. It returns ErrRelaunch if the program must be restarted.
func (u *Updater) Run(ctx context.Context) error {
	for {
		wait, err := u.step(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent stops; what failed for it is not an error
		}
		if errors.Is(err, ErrRelaunch) {
			return err
		}
		u.news.WaitFor(ctx, wait)
	}
}

// step does what is due now and returns when to look again.
func (u *Updater) step(ctx context.Context) (time.Duration, error) {
	last, err := u.cfg.Target.Recall(ctx)
	if err != nil {
		if ctx.Err() == nil {
			u.report(controlapi.Update{State: controlapi.UpdateWaiting, Reason: err.Error()})
		}
		return lookEvery, nil
	}
	if last.State == controlapi.UpdateUpdating {
		return u.watch(ctx, last)
	}
	if !u.cfg.Leads() {
		u.drop()
		return lookEvery, nil
	}
	offer, heard := u.current()
	switch {
	case offer == nil && !heard && last.State != "": // or each restart would be news, twice
		u.report(controlapi.Update{State: last.State, From: last.From, To: last.To, Reason: last.Reason})
		return lookEvery, nil
	case offer == nil:
		u.report(controlapi.Update{State: controlapi.UpdateIdle})
		return lookEvery, nil
	}
	return u.consider(ctx, offer, last)
}

// watch checks the try in progress. It reports what prevents its end, such as a refused write.
func (u *Updater) watch(ctx context.Context, last Record) (time.Duration, error) {
	err := u.cfg.Target.Watch(ctx, last)
	if errors.Is(err, ErrRelaunch) || ctx.Err() != nil {
		return 0, err
	}
	said, wait := controlapi.Update{State: last.State, From: last.From, To: last.To}, watchEvery
	if err != nil {
		said.Reason, wait = err.Error(), busyEvery
	}
	u.report(said)
	return wait, nil
}

// consider applies the rules to an offer.
func (u *Updater) consider(ctx context.Context, offer *controlapi.Offer, last Record) (time.Duration, error) {
	now := u.cfg.Now()
	state, reason, manifest := u.cfg.Rules.judge(offer, last, now)
	if state == controlapi.UpdateUpdating {
		if err := u.fits(offer, manifest); err != nil {
			state, reason = controlapi.UpdateRefused, err.Error()
		} else if wait, why := u.postponed(offer.ID, now); wait > 0 {
			state, reason = controlapi.UpdateWaiting, why
		}
	}
	from := u.cfg.Rules.Version
	if state == controlapi.UpdateDone {
		from = last.From
		if last.To != offer.Version {
			from = "" // it was that version before anything was offered
		}
	}
	said := controlapi.Update{State: state, From: from, To: offer.Version, Reason: reason}
	if state != controlapi.UpdateUpdating {
		u.report(said)
		return u.nextLook(offer.ID, now), nil
	}
	return 0, u.failed(offer.ID, u.cfg.Target.Try(ctx, Candidate{
		Offer: offer, Manifest: manifest, From: from,
		Began: func() { u.report(said) },
		Still: func() error { return u.still(offer, manifest) },
	}))
}

// still reports whether what was judged some minutes ago holds.
func (u *Updater) still(offer *controlapi.Offer, m *release.Manifest) error {
	now := u.cfg.Now()
	current, _ := u.current()
	switch {
	case current == nil || current.ID != offer.ID, !u.cfg.Leads(), !u.cfg.Rules.Windows.Contains(now), m.CheckExpiry(now) != nil:
		return errOver
	}
	return nil
}

// drop forgets the offer: only a leader hears when it is withdrawn.
func (u *Updater) drop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.heard, u.offer = false, nil
}

// fits asks the target, unless it has refused this very offer before.
func (u *Updater) fits(offer *controlapi.Offer, m *release.Manifest) error {
	u.mu.Lock()
	refused, refusal := u.refused, u.refusal
	u.mu.Unlock()
	if refused == offer.ID {
		return &RefusedError{refusal}
	}
	return u.cfg.Target.Fits(m)
}

// failed takes note of why the try of an offer, which need not be the current one any
// more, could not begin; ErrRelaunch passes.
func (u *Updater) failed(offer string, err error) error {
	switch {
	case err == nil || errors.Is(err, ErrRelaunch):
		return err
	case errors.Is(err, errOver): // it is judged again
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if refusal, ok := errors.AsType[*RefusedError](err); ok {
		u.refused, u.refusal = offer, refusal.reason
		return nil
	}
	wait := retryEvery
	if errors.Is(err, errBusy) {
		wait = busyEvery
	}
	u.retry, u.retryReason, u.retryAt = offer, err.Error(), u.cfg.Now().Add(wait)
	return nil
}

// postponed returns how long the try of an offer is to wait after one that could not begin.
func (u *Updater) postponed(offer string, now time.Time) (time.Duration, string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retry != offer {
		return 0, ""
	}
	return max(0, u.retryAt.Sub(now)), u.retryReason
}

// nextLook returns a time that is soon enough for a window that opens or a try that is due.
func (u *Updater) nextLook(offer string, now time.Time) time.Duration {
	if wait, _ := u.postponed(offer, now); wait > 0 {
		return min(wait, lookEvery)
	}
	if opens := u.cfg.Rules.Windows.Next(now).Sub(now); opens > 0 {
		return min(opens, lookEvery)
	}
	return lookEvery
}

// current returns the offer, and whether the control plane has sent any information about offers
// yet.
func (u *Updater) current() (offer *controlapi.Offer, heard bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.offer, u.heard
}

// report sets what the next heartbeat reports.
func (u *Updater) report(now controlapi.Update) {
	now.Reason = controlapi.ClipReason(now.Reason)
	u.mu.Lock()
	before := u.status
	u.status = now
	u.mu.Unlock()
	if before == now {
		return
	}
	u.cfg.Log.Info().Str("state", string(now.State)).Str("from", now.From).Str("to", now.To).Str("reason", now.Reason).Msg("self-update")
	u.cfg.Changed()
}
