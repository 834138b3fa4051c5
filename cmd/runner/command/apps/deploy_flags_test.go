package apps

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestSpecFlags_Devices(t *testing.T) {
	var f SpecFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	require.NoError(t, cmd.ParseFlags([]string{"--device", "nvidia.com/gpu=2", "--device", "example.com/fpga=9999999999"}))
	spec := runnerapi.AppSpec{Image: "a", Resources: runnerapi.Resources{Devices: map[string]int32{"nvidia.com/gpu": 1, "amd.com/gpu": 1}}}
	require.NoError(t, f.Apply(&spec))
	assert.Equal(t, int32(2), spec.Resources.Devices["nvidia.com/gpu"])
	assert.Equal(t, int32(1), spec.Resources.Devices["amd.com/gpu"], "what a file says stays")
	wrong := spec.Validate()
	require.Len(t, wrong, 1)
	assert.Equal(t, "resources.devices.example.com/fpga", wrong[0].Field)
}

func TestSpecFlags_RunAsRoot(t *testing.T) {
	var f SpecFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	require.NoError(t, cmd.ParseFlags([]string{"--run-as-root"}))
	spec := runnerapi.AppSpec{Image: "nginx", Security: &runnerapi.Security{FSGroup: new(int64(5)), AddCapabilities: []string{"CHOWN", "SYS_CHROOT"}}}
	require.NoError(t, f.Apply(&spec))
	assert.True(t, spec.Security.AllowRoot)
	assert.Equal(t, int64(5), *spec.Security.FSGroup, "what a file says stays")
	assert.Equal(t, []string{"CHOWN", "SYS_CHROOT", "DAC_OVERRIDE", "FOWNER", "NET_BIND_SERVICE", "SETGID", "SETUID"}, spec.Security.AddCapabilities)
	assert.Empty(t, spec.Validate())
}

func TestSpecFlags_PassthroughHost(t *testing.T) {
	apply := func(spec *runnerapi.AppSpec, args ...string) error {
		var f SpecFlags
		cmd := &cobra.Command{}
		f.add(cmd)
		require.NoError(t, cmd.ParseFlags(args))
		return f.Apply(spec)
	}
	spec := runnerapi.AppSpec{Image: "a", Ports: []runnerapi.Port{{Port: 5432}}}
	require.NoError(t, apply(&spec, "--passthrough-host", "db.example.com:5432", "--host", "www.example.com", "--allow-from", "192.0.2.0/24"))
	assert.Equal(t, []runnerapi.IngressHost{{Host: "www.example.com"}, {Host: "db.example.com", Port: 5432, Passthrough: true}}, spec.Ingress.Hosts)
	assert.Empty(t, spec.Validate())
	require.ErrorContains(t, apply(&spec, "--passthrough-host", "db.example.com:0"), "give HOST or HOST:PORT")
}
