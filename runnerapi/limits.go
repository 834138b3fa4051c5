package runnerapi

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

// Limits of calls.
const (
	DefaultCallTimeout = 30 * time.Second // of a call that neither waits nor streams
	MaxWait            = params.MaxWait   // of ?wait=
	MaxAppBody         = 1 << 20
	MaxSecretData      = 1 << 20                  // of all values together, as Kubernetes has it
	MaxSecretBody      = 6*MaxSecretData + 64<<10 // JSON may write each byte of a value as \u0000
)

// MaxManifestsBody bounds the manifests of one call.
const MaxManifestsBody = 4 << 20
