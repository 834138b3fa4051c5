package cli_test

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func TestDurationVar(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "1.5h": 90 * time.Minute, "1d": day, "30d": 30 * day, "2w": 14 * day, "1y": 365 * day, "1d12h": 36 * time.Hour, "0": 0} {
		var got time.Duration
		fl := pflag.NewFlagSet("test", pflag.ContinueOnError)
		cli.DurationVar(fl, &got, "ttl", time.Hour, "lifetime")
		assert.Equal(t, time.Hour, got, "by default")
		require.NoError(t, fl.Parse([]string{"--ttl", text}))
		assert.Equal(t, want, got, text)
	}
	assert.Error(t, pflag.NewFlagSet("test", pflag.ContinueOnError).Parse([]string{"--ttl", "soon"}))
}
