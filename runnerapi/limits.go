package runnerapi

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

const DefaultCallTimeout = 30 * time.Second // of a call that neither waits nor streams

const MaxAppBody = 1 << 20

const MaxSecretBody = 3 << 19 // 1.5 MiB: Kubernetes' 1 MiB of values, as base64

const MaxWait = params.MaxWait // of ?wait=

// MaxManifestsBody bounds the manifests of one call.
const MaxManifestsBody = 4 << 20
