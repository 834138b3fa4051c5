package runnerapi

import (
	"math"

	"github.com/pipeops/pipeops-vm-agent/internal/bounded"
)

// ofAnswers bounds what the values of an agent's answer take.
var ofAnswers = bounded.Limits{Bytes: math.MaxInt32, Values: 1 << 20, Depth: 100}
