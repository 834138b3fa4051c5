package hosts

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// TestHostClaim_ResolverFailure covers the reason that deployers read. They cannot fix the
// resolver.
func TestHostClaim_ResolverFailure(t *testing.T) {
	claim := unsure(store.HostClaim{}, errors.New("SERVFAIL"), time.Now())
	assert.Equal(t, "the control plane's DNS resolver failed; have its operator check it: SERVFAIL", claim.Reason)
	assert.Empty(t, unsure(store.HostClaim{Proof: "grant"}, errors.New("SERVFAIL"), time.Now()).Reason, "what was proven stays so")
}
