package update

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/updatewindow"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// target is a Target whose answers the test says.
type target struct {
	mu    sync.Mutex
	last  Record
	fits  error
	tries []string // offers that were tried
	slow  bool     // says that a try began, and asks whether it still is to be
	takes time.Duration
	try   func() error
	watch func() error
}

func (f *target) Fits(*release.Manifest) error { return f.fits }

func (f *target) Recall(context.Context) (Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, nil
}

func (f *target) keep(r Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = r
}

func (f *target) Try(_ context.Context, c Candidate) error {
	f.mu.Lock()
	f.tries = append(f.tries, c.Offer.ID)
	try := f.try
	f.mu.Unlock()
	if f.slow {
		c.Began()
		time.Sleep(f.takes)
		if err := c.Still(); err != nil {
			return err
		}
	}
	return try()
}

// tried are the offers that were tried.
func (f *target) tried() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tries)
}

func (f *target) answer(try func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.try = try
}

func (f *target) Watch(context.Context, Record) error { return f.watch() }

// run runs an Updater of v1.0.0 in a bubble of time until the test is through with it.
func run(t *testing.T, f *target, test func(u *Updater), change ...func(*Config)) {
	t.Helper()
	runUntil(t, nil, f, test, change...)
}

// runUntil is like run, and the Updater ends with an error.
func runUntil(t *testing.T, end error, f *target, test func(u *Updater), change ...func(*Config)) {
	t.Helper()
	rules := rulesOf(t, "v1.0.0")
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{
			Rules: rules, Target: f, Log: zerolog.Nop(), Now: time.Now,
			Changed: func() {}, Leads: func() bool { return true },
		}
		for _, c := range change {
			c(&cfg)
		}
		ctx, cancel := context.WithCancel(t.Context())
		u := New(cfg)
		var running sync.WaitGroup
		running.Go(func() { assert.ErrorIs(t, u.Run(ctx), end) })
		synctest.Wait()
		test(u)
		cancel()
		running.Wait()
	})
}

// within lets the Updater begin in a window of the bubble's time, which starts at midnight.
func within(t *testing.T, window string) func(*Config) {
	t.Helper()
	windows, err := updatewindow.Parse(window)
	require.NoError(t, err)
	return func(c *Config) { c.Rules.Windows = windows }
}

// pass lets time pass, and waits until everybody has noticed.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestUpdater_TriesFailedOfferOnce(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	again := offerOf(t, "v1.1.0", func(o *controlapi.Offer) { o.ID = "again" })
	f := &target{}
	f.try = func() error {
		tried := f.tried()
		f.keep(Record{State: controlapi.UpdateFailed, Offer: tried[len(tried)-1], From: "v1.0.0", To: "v1.1.0", Reason: "it crashed"})
		return nil
	}
	run(t, f, func(u *Updater) {
		assert.Equal(t, controlapi.Update{State: controlapi.UpdateIdle}, u.Status())
		u.Offered(offer)
		pass(time.Hour)
		assert.Equal(t, []string{offer.ID}, f.tried())
		assert.Equal(t, controlapi.Update{State: controlapi.UpdateFailed, Offer: offer.ID, From: "v1.0.0", To: "v1.1.0", Reason: "it crashed"}, u.Status())
		u.Offered(&controlapi.Offer{ID: offer.ID, Version: "v1.1.0"}) // as each heartbeat is answered
		u.Offered(nil)                                                // withdrawn
		synctest.Wait()
		assert.Equal(t, controlapi.Update{State: controlapi.UpdateIdle}, u.Status())
		u.Offered(again)
		synctest.Wait()
		assert.Equal(t, []string{offer.ID, "again"}, f.tried())
	})
}

func TestUpdater_WaitsForWindow(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	f := &target{slow: true, try: func() error { return ErrRelaunch }}
	runUntil(t, ErrRelaunch, f, func(u *Updater) {
		u.Offered(offer)
		synctest.Wait()
		assert.Equal(t, "for the window that opens at 2000-01-01T02:00:00Z", u.Status().Reason)
		pass(2*time.Hour - time.Second)
		assert.Empty(t, f.tried())
		pass(2 * time.Second)
		synctest.Wait()
		assert.Len(t, f.tried(), 1)
		assert.Equal(t, controlapi.UpdateUpdating, u.Status().State)
	}, within(t, "02:00-04:00"))
}

func TestUpdater_RetriesTemporaryErrors(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	f := &target{try: func() error { return errors.New("the site does not answer") }}
	run(t, f, func(u *Updater) {
		u.Offered(offer)
		synctest.Wait()
		assert.Len(t, f.tried(), 1)
		assert.Equal(t, controlapi.UpdateWaiting, u.Status().State)
		assert.Equal(t, "the site does not answer", u.Status().Reason)
		f.answer(func() error { return refuse("digest: it is not what was signed") })
		pass(retryEvery + time.Second)
		assert.Len(t, f.tried(), 2)
		assert.Equal(t, controlapi.UpdateRefused, u.Status().State)
		pass(2 * time.Hour)
		assert.Len(t, f.tried(), 2)
	})
}

// TestUpdater_BlamesTriedOffer has another offer come while one is tried.
func TestUpdater_BlamesTriedOffer(t *testing.T) {
	bad, good := offerOf(t, "v1.1.0"), offerOf(t, "v1.2.0", func(o *controlapi.Offer) { o.ID = "good" })
	for name, why := range map[string]error{"refused": refuse("digest: it is not what was signed"), "put off": errors.New("the site does not answer")} {
		t.Run(name, func(t *testing.T) {
			f := &target{}
			f.try = func() error {
				time.Sleep(time.Minute)
				return why
			}
			run(t, f, func(u *Updater) {
				u.Offered(bad)
				pass(time.Second)
				f.answer(func() error { f.keep(Record{State: controlapi.UpdateFailed, Offer: "good"}); return nil })
				u.Offered(good)
				pass(time.Minute)
				assert.Equal(t, []string{bad.ID, "good"}, f.tried(), "at once")
			})
		})
	}
}

// TestUpdater_BusyIsReportedOnce although the target is busy at each check of a minute.
func TestUpdater_BusyIsReportedOnce(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	var news atomic.Int32
	f := &target{try: func() error { return errBusy }}
	run(t, f, func(u *Updater) {
		u.Offered(offer)
		pass(time.Minute)
		assert.Equal(t, controlapi.UpdateWaiting, u.Status().State)
		assert.Equal(t, errBusy.Error(), u.Status().Reason)
		assert.Greater(t, len(f.tried()), 10)
		assert.EqualValues(t, 1, news.Load())
	}, func(c *Config) { c.Changed = func() { news.Add(1) } })
}

func TestUpdater_OnlyLeaderBegins(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	watched := 0
	f := &target{try: func() error { return nil }, watch: func() error { watched++; return nil }}
	run(t, f, func(u *Updater) {
		u.Offered(offer)
		pass(time.Hour)
		assert.Empty(t, f.tried())
		f.keep(Record{State: controlapi.UpdateUpdating, Offer: offer.ID})
		pass(time.Minute)
		assert.NotZero(t, watched, "all replicas watch")
	}, func(c *Config) { c.Leads = func() bool { return false } })
}

// TestUpdater_ReportsFailedWatch has a rollback be refused.
func TestUpdater_ReportsFailedWatch(t *testing.T) {
	var watched atomic.Int32
	f := &target{last: Record{State: controlapi.UpdateUpdating, Offer: "o", From: "v1.0.0", To: "v1.1.0"}}
	f.watch = func() error {
		watched.Add(1)
		return errors.New("a policy denied the request")
	}
	run(t, f, func(u *Updater) {
		want := controlapi.Update{State: controlapi.UpdateUpdating, From: "v1.0.0", To: "v1.1.0", Reason: "a policy denied the request"}
		assert.Equal(t, want, u.Status())
		pass(time.Minute - time.Second)
		assert.EqualValues(t, 12, watched.Load(), "not each second")
	})
}

// TestUpdater_JudgesAgainAfterDownload has each rule change during a download.
func TestUpdater_JudgesAgainAfterDownload(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	expires := offerOf(t, "v1.1.0", expiring(t, time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC))) // five minutes after a bubble's time begins
	nothing := func(*Updater, *atomic.Bool) {}
	for name, c := range map[string]struct {
		offer  *controlapi.Offer
		takes  time.Duration
		change func(u *Updater, leads *atomic.Bool)
		want   controlapi.UpdateState
	}{
		"withdrawn":             {offer, 10 * time.Minute, func(u *Updater, _ *atomic.Bool) { u.Offered(nil) }, controlapi.UpdateIdle},
		"the window is over":    {offer, 40 * time.Minute, func(*Updater, *atomic.Bool) { pass(time.Hour) }, controlapi.UpdateWaiting},
		"the release expires":   {expires, 10 * time.Minute, nothing, controlapi.UpdateRefused},
		"another replica leads": {offer, 10 * time.Minute, func(_ *Updater, leads *atomic.Bool) { leads.Store(false) }, controlapi.UpdateUpdating}, // nobody asks it
	} {
		t.Run(name, func(t *testing.T) {
			begun := 0
			f := &target{slow: true, takes: c.takes, try: func() error { begun++; return nil }}
			var leads atomic.Bool
			leads.Store(true)
			run(t, f, func(u *Updater) {
				u.Offered(c.offer)
				pass(time.Second)
				c.change(u, &leads)
				pass(15 * time.Minute)
				assert.Len(t, f.tried(), 1)
				assert.Equal(t, c.want, u.Status().State)
			}, within(t, "00:00-00:30"), func(c *Config) { c.Leads = leads.Load })
			assert.Zero(t, begun)
		})
	}
}

// TestUpdater_NewLeaderNeedsFullOffer has the offer withdrawn while another replica led.
func TestUpdater_NewLeaderNeedsFullOffer(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	var leads atomic.Bool
	f := &target{try: func() error { return nil }}
	run(t, f, func(u *Updater) {
		u.Offered(offer)
		pass(time.Second)
		assert.Empty(t, u.Status().Offer, "so that it is offered in full")
		leads.Store(true)
		u.Offered(&controlapi.Offer{ID: offer.ID, Version: "v1.1.0"}) // answered before it was dropped
		pass(time.Minute)
		assert.Empty(t, f.tried())
		assert.Equal(t, controlapi.UpdateIdle, u.Status().State)
		f.answer(func() error { f.keep(Record{State: controlapi.UpdateFailed, Offer: offer.ID}); return nil })
		u.Offered(offer)
		pass(time.Second)
		assert.Len(t, f.tried(), 1)
	}, func(c *Config) { c.Leads = leads.Load })
}

func TestUpdater_RefusesUnfitTarget(t *testing.T) {
	offer := offerOf(t, "v1.1.0")
	f := &target{fits: refuse("program: the release has none for plan9/amd64")}
	run(t, f, func(u *Updater) {
		u.Offered(offer)
		synctest.Wait()
		assert.Equal(t, controlapi.UpdateRefused, u.Status().State)
		assert.Contains(t, u.Status().Reason, "plan9")
		assert.Empty(t, f.tried())
	})
}

func TestUpdater_KeepsLastRecord(t *testing.T) {
	f := &target{last: Record{State: controlapi.UpdateDone, Offer: "o", From: "v0.9.0", To: "v1.0.0"}}
	run(t, f, func(u *Updater) {
		assert.Equal(t, controlapi.Update{State: controlapi.UpdateDone, From: "v0.9.0", To: "v1.0.0"}, u.Status())
		u.Offered(nil)
		synctest.Wait()
		assert.Equal(t, controlapi.Update{State: controlapi.UpdateIdle}, u.Status())
	})
}
