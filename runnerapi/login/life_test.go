package login_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// The certificate of an hour is 66 minutes long, 6 of them before it was issued. So it is due
// after 38.
func TestRenew_AfterTwoThirds(t *testing.T) {
	p := startPlane(t)
	l := p.login(t, func(err error) { t.Error(err) })
	p.forward(37 * time.Minute)
	call(t, l, p)
	assert.Zero(t, p.asked.Load())
	first := p.seen.Load()

	p.forward(2 * time.Minute)
	call(t, l, p)
	assert.EqualValues(t, 1, p.asked.Load())
	cert, err := l.Certificate()
	require.NoError(t, err)
	assert.True(t, cert.Leaf.NotAfter.After(first.NotAfter))
	assert.Equal(t, first.SerialNumber, cert.Leaf.SerialNumber)
	call(t, l, p)
	assert.EqualValues(t, 1, p.asked.Load(), "it asks once")
	assert.Equal(t, cert.Leaf.Raw, p.seen.Load().Raw, "calls come by a new connection, with the new certificate")
}

func TestRenew_BeforeUse(t *testing.T) {
	p := startPlane(t)
	for name, use := range map[string]func(*login.Login){
		"for a call of the control plane": func(l *login.Login) { call(t, l, p) },
		"for a connection to an agent": func(l *login.Login) {
			_, err := l.Certificate()
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.original = p.credentials(t)
			l := p.login(t, func(err error) { t.Error(err) })
			p.forward(2 * time.Hour)
			before := p.asked.Load()
			use(l)
			assert.Equal(t, before+1, p.asked.Load())
			cert, err := l.Certificate()
			require.NoError(t, err)
			assert.True(t, cert.Leaf.NotAfter.After(p.now()))
		})
	}
}

// The call fails with the reason of the refusal, and connections to agents do not ask each time.
func TestRenew_ReportsRefusal(t *testing.T) {
	p := startPlane(t)
	var noted atomic.Int64
	l := p.login(t, func(error) { noted.Add(1) })
	p.reissue = func(*http.Request) (login.Answer, error) {
		return login.Answer{}, problem.Errorf(problem.Unauthorized, "make a new one", "it was revoked")
	}
	p.forward(2 * time.Hour)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url, nil)
	require.NoError(t, err)
	resp, err := l.HTTPClient().Do(r)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	var refused *problem.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "it was revoked", refused.Detail)

	before := p.asked.Load()
	for range 3 {
		cert, err := l.Certificate()
		require.NoError(t, err)
		assert.True(t, cert.Leaf.NotAfter.Before(p.now()), "the agent refuses it")
	}
	assert.Equal(t, before+1, p.asked.Load())
	assert.EqualValues(t, 1, noted.Load())
	p.forward(2 * time.Minute)
	_, err = l.Certificate()
	require.NoError(t, err)
	assert.Equal(t, before+2, p.asked.Load())
}
