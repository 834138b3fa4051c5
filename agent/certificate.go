package agent

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"time"

	"github.com/rs/zerolog"

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

// identityStore is the store of the agent's identity. All replicas of the agent share it: one of
// them asks for a certificate, and the others find it there.
type identityStore struct {
	identity.Store
	replica string
	health  *health
	log     zerolog.Logger
}

// obtain gets the agent's next identity in place of old, which is nil for the first. The key is
// stored before it is asked with.
func (i *identityStore) obtain(ctx context.Context, old *identity.Identity, ask func(context.Context, *ecdsa.PrivateKey) (*identity.Identity, error)) (*identity.Identity, error) {
	w := waiting{}
	for {
		s, err := i.load(ctx)
		if err != nil {
			return nil, err
		}
		if id := s.identity; id != nil && !id.Same(old) {
			i.logAnothers(id)
			return id, nil
		}
		if !w.over(s, i.replica) {
			if old == nil {
				i.health.set("identity", "replica "+s.request.By+" is asking for the agent's certificate")
			}
			if !retry.Wait(ctx, retry.Jitter(lookEvery)) {
				return nil, ctx.Err()
			}
			continue
		}
		key, err := i.claim(ctx, s)
		if err != nil {
			return nil, err
		}
		if key == nil {
			continue
		}
		id, err := ask(ctx, key)
		if err != nil {
			i.giveUp(ctx, key)
			return nil, err
		}
		switch saved, err := i.keep(ctx, key, id); {
		case err != nil:
			return nil, err
		case saved:
			return id, nil
		}
	}
}

func (i *identityStore) logAnothers(id *identity.Identity) {
	i.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Msg("using the agent certificate that another replica obtained")
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
func (i *identityStore) load(ctx context.Context) (s stored, err error) {
	err = i.retry(ctx, "read the agent's identity from "+i.String(), func() (err error) {
		s.parts, s.version, err = i.Load(ctx)
		return err
	}, kube.Passing)
	if err != nil || s.parts == nil {
		return s, err
	}
	var damaged error
	if s.request, damaged = identity.RequestIn(s.parts); damaged != nil {
		i.log.Error().Err(damaged).Stringer("store", i.Store).Msg("the stored certificate request is corrupt; requesting again")
	}
	s.identity, damaged = identity.Decode(s.parts)
	if damaged != nil && s.request == nil {
		i.log.Error().Err(damaged).Stringer("store", i.Store).Msg("the stored identity is corrupt; registering again")
	}
	return s, nil
}

// newer returns the stored identity if it is another than old, which may be nil.
func (i *identityStore) newer(ctx context.Context, old *identity.Identity) (*identity.Identity, error) {
	s, err := i.load(ctx)
	if err != nil || s.identity == nil || s.identity.Same(old) {
		return nil, err
	}
	return s.identity, nil
}

// claim stores that this replica asks, and with which key. It returns no key when another replica
// was first.
func (i *identityStore) claim(ctx context.Context, s stored) (*ecdsa.PrivateKey, error) {
	r := &identity.Request{By: i.replica}
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
	saved, err := i.save(ctx, "keep the agent's key in ", parts, s.version)
	if err != nil || !saved {
		return nil, err
	}
	return r.Key, nil
}

// keep stores the identity that was got for key. It returns false when it was not asked for any
// more.
func (i *identityStore) keep(ctx context.Context, key *ecdsa.PrivateKey, id *identity.Identity) (bool, error) {
	parts, err := id.Encode()
	if err != nil {
		return false, err
	}
	for {
		s, err := i.load(ctx)
		if err != nil || s.request == nil || !s.request.Key.Equal(key) {
			return false, err
		}
		saved, err := i.save(ctx, "store the agent's identity in ", parts, s.version)
		if err != nil {
			return false, err
		}
		if saved {
			i.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Msg("identity issued and stored")
			return true, nil
		}
	}
}

func (i *identityStore) save(ctx context.Context, what string, parts map[string][]byte, version string) (saved bool, err error) {
	err = i.retry(ctx, what+i.String(), func() (err error) {
		saved, err = i.Save(ctx, parts, version)
		return err
	}, kube.Passing)
	return saved, err
}

// giveUp informs the other replicas that this one no longer asks. The key stays: the request may
// have been granted.
func (i *identityStore) giveUp(ctx context.Context, key *ecdsa.PrivateKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	parts, version, err := i.Load(ctx)
	if err != nil {
		return // they wait a little longer
	}
	r, err := identity.RequestIn(parts)
	if err != nil || r == nil || r.By != i.replica || !r.Key.Equal(key) {
		return
	}
	r.By = ""
	if parts, err = r.With(parts); err == nil {
		_, _ = i.Save(ctx, parts, version) // in vain only when they know already
	}
}

// saveBeside stores the identity in place of the one in parts, which are stored as that version,
// and leaves what else is there.
func (i *identityStore) saveBeside(ctx context.Context, id *identity.Identity, parts map[string][]byte, version string) (bool, error) {
	encoded, err := id.Encode()
	if err != nil {
		return false, err
	}
	for name, part := range parts { // a request for the next certificate may be among them
		if _, ours := encoded[name]; !ours {
			encoded[name] = part
		}
	}
	return i.Save(ctx, encoded, version)
}

// retry calls do until it succeeds, fails for good or ctx ends. The waits grow from one second to
// thirty, with jitter.
func (i *identityStore) retry(ctx context.Context, what string, do func() error, passing func(error) bool) error {
	for wait := newBackoff(); ; {
		err := do()
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !passing(err) {
			return err
		}
		d := wait.NextBackOff()
		i.health.set("identity", what+": "+err.Error())
		i.log.Warn().Err(err).Dur("retryIn", d.Round(time.Millisecond)).Msg("could not " + what)
		if !retry.Wait(ctx, d) {
			return ctx.Err()
		}
	}
}
