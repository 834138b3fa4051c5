package hosts

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// TestAFailedResolverIsItsOperatorsToMend: deployers read the reason as the fix of a host that is
// not served, and can do nothing about the resolver themselves.
func TestAFailedResolverIsItsOperatorsToMend(t *testing.T) {
	claim := unsure(store.HostClaim{}, errors.New("SERVFAIL"), time.Now())
	assert.Equal(t, "the control plane's DNS resolver failed; have its operator check it: SERVFAIL", claim.Reason)
	assert.Empty(t, unsure(store.HostClaim{Proof: "grant"}, errors.New("SERVFAIL"), time.Now()).Reason, "what was proven stays so")
}
