package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStatusNamesWhatIsMissing(t *testing.T) {
	h := newHealth()
	is := func(want string, wantReady bool) {
		t.Helper()
		ready, text := h.status(t.Context())
		assert.Equal(t, want, text)
		assert.Equal(t, wantReady, ready, text)
	}
	is("apps: starting; identity: starting; policy: starting; tunnel: starting", false)
	for _, check := range []string{"identity", "tunnel", "apps", "policy"} {
		h.set(check, stateOK)
	}
	is("ready", true)
	h.remark("tunnels", func() string { return "tunnels: 1 of 2 up" })
	is("ready; tunnels: 1 of 2 up", true)
	h.ask("tunnel", func() string { return "waiting: no route" })
	is("tunnel: waiting: no route", false)
}
