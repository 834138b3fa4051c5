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
	MaxSecretBody      = 3 << 19 // 1.5 MiB: Kubernetes' 1 MiB of values, as base64
)

// MaxManifestsBody bounds the manifests of one call.
const MaxManifestsBody = 4 << 20
