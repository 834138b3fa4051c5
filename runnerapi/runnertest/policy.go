package runnertest

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// AllowAll is the policy of an owner who allows every call but those to the Kubernetes API, for
// which a policy has to name an identity.
type AllowAll struct{}

var _ backend.Policy = AllowAll{}

// Decide implements backend.Policy.
func (AllowAll) Decide(runnerapi.Intent) error { return nil }

// Changed implements backend.Policy.
func (AllowAll) Changed() <-chan struct{} { return nil }

// KubernetesGrant implements backend.Policy.
func (AllowAll) KubernetesGrant(i runnerapi.Intent) (runnerapi.KubernetesGrant, error) {
	return runnerapi.KubernetesGrant{}, runnerapi.PolicyDenied("set a policy that names a user", "the policy names no identity for %s", i.Command)
}

// AuditRequired implements backend.Policy.
func (AllowAll) AuditRequired() bool { return false }

// Records implements backend.Policy.
func (AllowAll) Records(runnerapi.Intent) bool { return false }

// Approval implements backend.Policy.
func (AllowAll) Approval(runnerapi.Intent) time.Duration { return 0 }

// ApprovesUnseen implements backend.Policy.
func (AllowAll) ApprovesUnseen(runnerapi.Intent) bool { return false }

// Visible implements backend.Policy.
func (AllowAll) Visible(_, _, _ string) bool { return true }
