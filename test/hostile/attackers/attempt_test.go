package attackers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// attempt is one thing that an attacker tries by a call, and what the agent has to answer.
type attempt struct {
	name  string
	tries string
	// do makes the call.
	do func(ctx context.Context, c *caller) answer
	// want has the answers that are right: STATUS CODE, or STATUS alone for one without a code.
	want []string
	// within, if set, looks at what an answer that is right holds.
	within func(answer) error
}

// send makes one call.
func send(method, path string, body any, header ...string) func(context.Context, *caller) answer {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = append(h[header[i]], header[i+1])
	}
	return func(ctx context.Context, c *caller) answer {
		if f, ok := body.(func() io.Reader); ok {
			return c.call(ctx, method, path, f(), h)
		}
		return c.call(ctx, method, path, body, h)
	}
}

// one is the only answer that is right.
func one(want string) []string { return []string{want} }

// try makes every attempt, and compares.
func (s *scene) try(t *testing.T, c *caller, attempts []attempt) {
	t.Helper()
	distinct(t, attempts)
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			got := a.do(t.Context(), c)
			s.hear(a.name, got.body)
			t.Logf("%.300v", got)
			said := strings.TrimSpace(fmt.Sprintf("%d %s", got.status, got.code))
			if !slices.Contains(a.want, said) {
				assert.Fail(t, "another answer than "+strings.Join(a.want, " or "), "it tries: %s\n%v", a.tries, got)
				return
			}
			if a.within != nil {
				assert.NoError(t, a.within(got), a.tries)
			}
		})
	}
}

func distinct(t *testing.T, attempts []attempt) {
	t.Helper()
	names := map[string]bool{}
	for _, a := range attempts {
		assert.NotEmpty(t, a.tries, a.name)
		assert.False(t, names[a.name], "two attempts are called %s", a.name)
		names[a.name] = true
	}
	assert.GreaterOrEqual(t, len(attempts), leastAttempts)
}

// without returns an error if an answer names one of these.
func without(texts ...string) func(answer) error {
	return func(a answer) error {
		for _, text := range texts {
			if strings.Contains(string(a.body), text) {
				return fmt.Errorf("it holds %q: %.400s", text, a.body)
			}
		}
		return nil
	}
}

// endless is a body of n bytes, of one text over and over.
func endless(n int64, text string) func() io.Reader {
	return func() io.Reader { return io.LimitReader(&repeated{text: text}, n) }
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[r.at]
		r.at = (r.at + 1) % len(r.text)
	}
	return len(p), nil
}
