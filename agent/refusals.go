package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

const (
	// refusalPause is how long refusals of one kind are counted before another record of them: a
	// persistent client must not fill the audit log.
	refusalPause = time.Minute
	// refusalKinds bounds the kinds that are distinguished: a Runner and a reason.
	refusalKinds = 64
)

// refusals records refused Runners in the audit log: the first refusal at once, and later ones as a
// number.
type refusals struct {
	record func(runnerapi.AuditRecord)
	now    func() time.Time
	log    zerolog.Logger

	mu    sync.Mutex
	kinds map[refusalKind]*refusalCount
}

type refusalKind struct {
	code   runnerapi.Code
	runner string
	open   bool
}

// refusalCount counts the unrecorded refusals of a kind.
type refusalCount struct {
	since time.Time // of the last record
	more  int64
	last  transport.Refusal
}

func newRefusals(record func(runnerapi.AuditRecord), now func() time.Time, log zerolog.Logger) *refusals {
	return &refusals{record: record, now: now, log: log, kinds: map[refusalKind]*refusalCount{}}
}

// note implements transport.TLSConfig.Refused.
func (r *refusals) note(refusal transport.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	kind := refusalKind{refusal.Code, refusal.Runner, refusal.Open}
	known, ok := r.kinds[kind]
	if !ok && len(r.kinds) >= refusalKinds {
		kind = refusalKind{code: refusal.Code} // without the name, because there are too many
		known, ok = r.kinds[kind]
	}
	if !ok {
		r.kinds[kind] = &refusalCount{since: now}
		r.tell(refusal, now, 0)
		return
	}
	known.more++
	known.last = refusal
	if now.Sub(known.since) >= refusalPause {
		r.flush(known, now)
	}
}

// run records the counts until ctx ends, and once more then.
func (r *refusals) run(ctx context.Context) error {
	ticker := time.NewTicker(refusalPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			r.flushAll(0)
			return nil
		case <-ticker.C:
			r.flushAll(refusalPause)
		}
	}
}

// flushAll records counts that are at least so old, and forgets kinds that have become rare.
func (r *refusals) flushAll(after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for kind, known := range r.kinds {
		if now.Sub(known.since) < after {
			continue
		}
		if known.more == 0 {
			delete(r.kinds, kind)
			continue
		}
		r.flush(known, now)
	}
}

func (r *refusals) flush(known *refusalCount, now time.Time) {
	r.tell(known.last, now, known.more-1)
	known.since, known.more = now, 0
}

// tell records a refusal, and the number of unrecorded ones before it.
func (r *refusals) tell(refusal transport.Refusal, at time.Time, before int64) {
	message := refusal.Message
	if refusal.Open {
		message = "an open connection was cut: " + message
	}
	if before > 0 {
		message = fmt.Sprintf("%s (and %d more like it in the last minutes)", message, before)
	}
	r.log.Warn().Str("runner", refusal.Runner).Str("certificate", refusal.Certificate).Str("code", string(refusal.Code)).Msg(message)
	r.record(runnerapi.AuditRecord{
		Time: at.UTC(), Runner: refusal.Runner, Certificate: refusal.Certificate, Command: runnerapi.AuditConnect,
		Outcome: runnerapi.AuditRefused, Code: refusal.Code, Message: message,
	})
}
