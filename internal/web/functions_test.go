package web

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTone_FaultsAreNotPlain: a state in which nothing runs has the color of a fault.
func TestTone_FaultsAreNotPlain(t *testing.T) {
	for state, tone := range map[string]string{
		"Error": "bad", "CrashLoopBackOff": "bad", "ImagePullBackOff": "bad", "ErrImagePull": "bad", "CreateContainerConfigError": "bad",
		"OOMKilled": "bad", "StartError": "bad", "UnexpectedAdmissionError": "bad", "broken chain": "bad", "Failed": "bad",
		"expired": "warn", "Completed": "good", "ContainerCreating": "busy", "Stopped": "plain", "revoked": "plain",
	} {
		assert.Equal(t, tone, Tone(state), state)
	}
}
