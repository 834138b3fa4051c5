package alerts

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// Path is where Alertmanager's webhook goes.
	Path = "/alerts"
	// burst and interval bound the events of one agent: so many at once, and one per interval.
	burst    = 200
	interval = 10 * time.Second
	// remembered is how many events are known as sent. The control plane knows more.
	remembered = 2000
	// sendTimeout is shorter than the time that the port gives an answer.
	sendTimeout = 8 * time.Second
	maxToken    = 4096
)

// Config configures a Receiver.
type Config struct {
	// TokenFile has the token that Alertmanager sends. It is read at each request, so it may come
	// and change while the agent runs. If it is missing, every request is refused.
	TokenFile string
	// Send returns nil once the control plane has taken the alerts.
	Send func(ctx context.Context, alerts []Alert) error
	// Count receives how many alerts of a request had this outcome.
	Count func(outcome string, n int)
	Now   func() time.Time
	Log   zerolog.Logger
}

// The outcomes of an alert.
const (
	Sent    = "sent"
	Known   = "known"   // sent before
	Limited = "limited" // past the limit; Alertmanager sends it again
	Failed  = "failed"  // the control plane did not take it; Alertmanager sends it again
)

// Outcomes returns all outcomes.
func Outcomes() []string { return []string{Sent, Known, Limited, Failed} }

// Receiver is the handler of [Path]. It answers 2xx after the control plane has taken the alerts.
// To every 5xx Alertmanager sends them again.
type Receiver struct {
	cfg   Config
	turn  chan struct{} // one request at a time
	limit *rate.Limiter
	sent  memory
}

// New returns a Receiver.
func New(cfg Config) *Receiver {
	return &Receiver{cfg: cfg, turn: make(chan struct{}, 1), limit: rate.NewLimiter(rate.Every(interval), burst), sent: newMemory(remembered)}
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), sendTimeout)
	defer cancel()
	if err := r.receive(ctx, w, req); err != nil {
		r.cfg.Log.Warn().Err(err).Msg("failed to store alerts")
		problem.Write(w, problem.RequestID(req.Context()), err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *Receiver) receive(ctx context.Context, w http.ResponseWriter, req *http.Request) error {
	if err := r.authorize(req); err != nil {
		return err
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return problem.Errorf(problem.Unavailable, "send them again", "other alerts are being sent")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return problem.Errorf(problem.TooLarge, "set max_alerts of the webhook", "the body has more than %d bytes", maxBody)
	case err != nil:
		return problem.Errorf(problem.BadRequest, "send it again", "the body broke off")
	}
	list, err := Decode(body)
	if err != nil {
		return err
	}
	return r.pass(ctx, list)
}

// authorize compares the request's bearer token with that of the file.
func (r *Receiver) authorize(req *http.Request) error {
	text, err := boundedfile.Head(r.cfg.TokenFile, maxToken)
	want := strings.TrimSpace(string(text))
	if err != nil || want == "" {
		r.cfg.Log.Debug().Err(err).Msg("failed to create a token for alerts")
		return problem.Errorf(problem.Unauthorized, "put a token into the file of PIPEOPS_ALERTS_TOKEN_FILE", "this agent has no token for alerts")
	}
	got, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1 {
		return problem.Errorf(problem.Unauthorized, "give Alertmanager the token of this agent", "the token is missing or wrong")
	}
	return nil
}

// pass sends those alerts that were not sent before, as far as the limit admits them.
func (r *Receiver) pass(ctx context.Context, list []Alert) error {
	now := r.cfg.Now()
	allowed := int(r.limit.TokensAt(now))
	fresh, known, limited := []Alert{}, 0, 0
	for _, a := range list {
		switch {
		case r.sent.has(a.ID()):
			known++
		case len(fresh) >= allowed:
			limited++
		default:
			if a.At.After(now) { // Alertmanager's clock is ahead
				a.At = now.UTC()
			}
			fresh = append(fresh, a)
		}
	}
	r.cfg.Count(Known, known)
	r.cfg.Count(Limited, limited)
	if len(fresh) > 0 {
		if err := r.cfg.Send(ctx, fresh); err != nil {
			r.cfg.Count(Failed, len(fresh))
			r.cfg.Log.Debug().Err(err).Msg("the control plane did not accept alerts")
			return problem.Errorf(problem.Unavailable, "send them again", "the control plane did not take the alerts")
		}
		r.limit.AllowN(now, len(fresh))
		r.cfg.Count(Sent, len(fresh))
		for _, a := range fresh {
			r.sent.add(a.ID())
		}
	}
	if limited > 0 {
		return problem.Errorf(problem.Unavailable, "send them again, and group or silence alerts that flap",
			"%d alerts are past the limit of one in %s", limited, interval).WithRetryAfter(interval)
	}
	return nil
}

// memory remembers the last IDs.
type memory struct {
	ids  map[string]struct{}
	ring []string
	next int
}

func newMemory(size int) memory {
	return memory{ids: make(map[string]struct{}), ring: make([]string, size)}
}

func (m *memory) has(id string) bool {
	_, ok := m.ids[id]
	return ok
}

func (m *memory) add(id string) {
	if m.has(id) {
		return
	}
	delete(m.ids, m.ring[m.next])
	m.ids[id], m.ring[m.next] = struct{}{}, id
	m.next = (m.next + 1) % len(m.ring)
}
