package dialrace_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/dialrace"
)

const patience = 100 * time.Millisecond

var errFailed, errFinal = errors.New("it failed"), errors.New("nothing else would do better")

// lane is an attempt that takes so long. It brings its name or fails.
type lane struct {
	name  string
	takes time.Duration
	err   error
	deaf  bool // it works although its context has ended
}

// field is a race of lanes, and what becomes of it.
type field struct {
	started map[string]time.Duration
	closed  []string
}

func (f *field) run(ctx context.Context, lanes ...lane) (string, []error) {
	f.started = map[string]time.Duration{}
	begin := time.Now()
	return dialrace.Race[string]{
		Patience: patience,
		Next: func() func(context.Context) (string, error) {
			if len(lanes) == 0 {
				return nil
			}
			l := lanes[0]
			lanes = lanes[1:]
			f.started[l.name] = time.Since(begin)
			return func(ctx context.Context) (string, error) {
				select {
				case <-time.After(l.takes):
					return l.name, l.err
				case <-ctx.Done():
					if l.deaf {
						return l.name, nil
					}
					return "", ctx.Err()
				}
			}
		},
		Final: func(err error) bool { return errors.Is(err, errFinal) },
		Close: func(name string) { f.closed = append(f.closed, name) },
	}.Run(ctx)
}

func TestDial_FirstWins(t *testing.T) {
	for name, test := range map[string]struct {
		lanes   []lane
		won     string
		failed  []error
		started map[string]time.Duration
		closed  []string
	}{
		"at once": {
			lanes: []lane{{name: "a"}, {name: "b"}}, won: "a", started: map[string]time.Duration{"a": 0},
		},
		"the next, at once, after a failure": {
			lanes: []lane{{name: "a", takes: 10, err: errFailed}, {name: "b"}}, won: "b", failed: []error{errFailed},
			started: map[string]time.Duration{"a": 0, "b": 10},
		},
		"the next, beside one that takes long": {
			lanes: []lane{{name: "a", takes: time.Hour, deaf: true}, {name: "b", takes: 10}}, won: "b",
			started: map[string]time.Duration{"a": 0, "b": patience}, closed: []string{"a"},
		},
		"the slow one, where the next takes longer": {
			lanes: []lane{{name: "a", takes: patience + 10}, {name: "b", takes: time.Hour}}, won: "a",
			started: map[string]time.Duration{"a": 0, "b": patience},
		},
		"none": {
			lanes: []lane{{name: "a", err: errFailed}, {name: "b", err: errFailed}}, failed: []error{errFailed, errFailed},
			started: map[string]time.Duration{"a": 0, "b": 0},
		},
		"none after a final failure": {
			lanes: []lane{{name: "a", err: errFinal}, {name: "b"}}, failed: []error{errFinal},
			started: map[string]time.Duration{"a": 0},
		},
		"none of none": {started: map[string]time.Duration{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &field{}
				won, failed := f.run(t.Context(), test.lanes...)
				assert.Equal(t, test.won, won)
				assert.Equal(t, test.failed, failed)
				assert.Equal(t, test.started, f.started)
				assert.Equal(t, test.closed, f.closed)
			})
		})
	}
}

func TestDial_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := &field{}
		won, failed := f.run(ctx, lane{name: "a", takes: time.Minute})
		assert.Empty(t, won)
		assert.Equal(t, []error{context.DeadlineExceeded}, failed)
	})
}
