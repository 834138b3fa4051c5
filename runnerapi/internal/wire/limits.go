package wire

import (
	"math"

	"github.com/pipeops/pipeops-vm-agent/internal/bounded"
)

// AnswerLimits bounds what the values of an agent's answer take.
var AnswerLimits = bounded.Limits{Bytes: math.MaxInt32, Values: 1 << 20, Depth: 100}
