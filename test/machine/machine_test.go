package machine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestMachine_TwoAtOnce(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("boots machines, as root")
	}
	for _, debian := range machine.Debians {
		t.Run(debian, func(t *testing.T) {
			if debian != machine.Bookworm {
				suite.Release(t, "another Debian's machines")
			}
			twoMachines(t, debian)
		})
	}
}

func twoMachines(t *testing.T, debian string) {
	network, err := machine.NewNetwork()
	require.NoError(t, err)
	defer func() { require.NoError(t, network.Close()) }()
	for _, name := range []string{"one", "two"} {
		m, err := machine.Boot(t.Context(), machine.Options{Name: name, Suite: debian, Network: network})
		require.NoError(t, err)
		defer func() { require.NoError(t, m.Down()) }()
		require.NoError(t, m.WriteFile("/etc/motd", []byte("hello"), 0o644))
		out, err := m.Command(t.Context(), "sh", "-c", "hostname; cat /etc/motd; systemctl show -p Version --value; ip -4 -o address").CombinedOutput()
		require.NoError(t, err, string(out))
		assert.True(t, strings.HasPrefix(string(out), name+"\nhello"), string(out))
		assert.Contains(t, string(out), m.Address)
		out, err = m.Command(t.Context(), "systemd-run", "--wait", "--pipe", "-q", "echo", "a unit ran").CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), "a unit ran")
	}
}
