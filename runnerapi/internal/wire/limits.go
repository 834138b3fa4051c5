package wire

import (
	"math"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// AnswerLimits bounds what the values of an agent's answer take.
var AnswerLimits = decode.Limits{Bytes: math.MaxInt32, Values: 1 << 20, Depth: 100}
