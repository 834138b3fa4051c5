package cli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func TestMemory(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 Mi", 12 << 20: "12 Mi", 1<<30 - 1: "1023 Mi", 1 << 30: "1 Gi", 16384 << 20: "16 Gi", 15974 << 20: "15.6 Gi", 100 << 40: "102400 Gi",
	} {
		assert.Equal(t, want, cli.Memory(bytes))
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 nodes", 1: "1 node", 12: "12 nodes"} {
		assert.Equal(t, want, cli.Count(n, "node"))
	}
}
