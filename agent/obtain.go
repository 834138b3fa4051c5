package agent

import (
	"context"
	"crypto/ecdsa"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// askAfter is how long a replica waits for one that has begun to request the agent's
	// certificate, before it takes over. It is not a lock: both use the same key, and both answers
	// are valid.
	askAfter = 15 * time.Second
	// lookEvery is how often a replica that waits looks.
	lookEvery = 500 * time.Millisecond
	// giveUpTimeout bounds telling the other replicas that this one gave up.
	giveUpTimeout = 2 * time.Second
)

// obtain gets the agent's next identity in place of old, which is nil for the
// first. Of all replicas of the agent one asks for it and the others find it in
// the store. The key is stored before it is asked with.
func (a *Agent) obtain(ctx context.Context, old *identity.Identity, ask func(context.Context, *ecdsa.PrivateKey) (*identity.Identity, error)) (*identity.Identity, error) {
	w := waiting{}
	for {
		s, err := a.load(ctx)
		if err != nil {
			return nil, err
		}
		if id := s.identity; id != nil && !id.Same(old) {
			a.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Msg("another replica got the agent's certificate: using it")
			return id, nil
		}
		if !w.over(s, a.replica) {
			if old == nil {
				a.health.set("identity", "replica "+s.request.By+" is asking for the agent's certificate")
			}
			if !retry.Wait(ctx, retry.Jitter(lookEvery)) {
				return nil, ctx.Err()
			}
			continue
		}
		key, err := a.claim(ctx, s)
		if err != nil {
			return nil, err
		}
		if key == nil {
			continue
		}
		id, err := ask(ctx, key)
		if err != nil {
			a.giveUp(ctx, key)
			return nil, err
		}
		switch saved, err := a.keep(ctx, key, id); {
		case err != nil:
			return nil, err
		case saved:
			return id, nil
		}
	}
}

// waiting is a replica's patience with another one.
type waiting struct {
	version string
	since   time.Time
}

// over reports whether it is this replica's turn to ask.
func (w *waiting) over(s stored, replica string) bool {
	if s.request == nil || s.request.By == "" || s.request.By == replica {
		return true
	}
	if w.version != s.version {
		w.version, w.since = s.version, time.Now()
	}
	return time.Since(w.since) >= askAfter
}

// stored is what the store holds.
type stored struct {
	parts    map[string][]byte
	version  string
	identity *identity.Identity // nil when there is none, or a damaged one
	request  *identity.Request
}

// load reads the store. It reports damaged content, which a new request replaces: the same cluster
// gets the same agent ID.
func (a *Agent) load(ctx context.Context) (s stored, err error) {
	err = a.retry(ctx, "read the agent's identity from "+a.store.String(), func() (err error) {
		s.parts, s.version, err = a.store.Load(ctx)
		return err
	}, kube.Passing)
	if err != nil || s.parts == nil {
		return s, err
	}
	var damaged error
	if s.request, damaged = identity.RequestIn(s.parts); damaged != nil {
		a.log.Error().Err(damaged).Stringer("store", a.store).Msg("the stored request for a certificate is damaged: asking anew")
	}
	s.identity, damaged = identity.Decode(s.parts)
	if damaged != nil && s.request == nil {
		a.log.Error().Err(damaged).Stringer("store", a.store).Msg("the stored identity is damaged: registering anew")
	}
	return s, nil
}

// newer returns the stored identity if it is another than old, which may be nil.
func (a *Agent) newer(ctx context.Context, old *identity.Identity) (*identity.Identity, error) {
	s, err := a.load(ctx)
	if err != nil || s.identity == nil || s.identity.Same(old) {
		return nil, err
	}
	return s.identity, nil
}

// claim stores that this replica asks, and with which key. It returns no key when another replica
// was first.
func (a *Agent) claim(ctx context.Context, s stored) (*ecdsa.PrivateKey, error) {
	r := &identity.Request{By: a.replica}
	if s.request != nil {
		r.Key = s.request.Key
	} else {
		var err error
		if r.Key, err = identity.NewKey(); err != nil {
			return nil, err
		}
	}
	parts, err := r.With(s.parts)
	if err != nil {
		return nil, err
	}
	saved, err := a.save(ctx, "keep the agent's key in ", parts, s.version)
	if err != nil || !saved {
		return nil, err
	}
	return r.Key, nil
}

// keep stores the identity that was got for key. It returns false when it was not asked for any
// more.
func (a *Agent) keep(ctx context.Context, key *ecdsa.PrivateKey, id *identity.Identity) (bool, error) {
	parts, err := id.Encode()
	if err != nil {
		return false, err
	}
	for {
		s, err := a.load(ctx)
		if err != nil || s.request == nil || !s.request.Key.Equal(key) {
			return false, err
		}
		saved, err := a.save(ctx, "store the agent's identity in ", parts, s.version)
		if err != nil {
			return false, err
		}
		if saved {
			a.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Msg("identity issued and stored")
			return true, nil
		}
	}
}

func (a *Agent) save(ctx context.Context, what string, parts map[string][]byte, version string) (saved bool, err error) {
	err = a.retry(ctx, what+a.store.String(), func() (err error) {
		saved, err = a.store.Save(ctx, parts, version)
		return err
	}, kube.Passing)
	return saved, err
}

// giveUp informs the other replicas that this one no longer asks. The key stays: the request may
// have been granted.
func (a *Agent) giveUp(ctx context.Context, key *ecdsa.PrivateKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	parts, version, err := a.store.Load(ctx)
	if err != nil {
		return // they wait a little longer
	}
	r, err := identity.RequestIn(parts)
	if err != nil || r == nil || r.By != a.replica || !r.Key.Equal(key) {
		return
	}
	r.By = ""
	if parts, err = r.With(parts); err == nil {
		_, _ = a.store.Save(ctx, parts, version) // in vain only when they know already
	}
}
