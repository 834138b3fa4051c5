package config_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

func load(t *testing.T, env map[string]string, args ...string) (config.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config.AddFlags(flags)
	require.NoError(t, flags.Parse(args))
	return config.Load(flags, func(k string) string { return env[k] })
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

var sound = map[string]string{"PIPEOPS_CONTROL_PLANE_URL": "https://cp.example.com", "CLUSTER_NAME": "prod-1"}

func with(more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, sound)
	maps.Copy(all, more)
	return all
}

func TestFirstNamespaces_DefaultIsOwn(t *testing.T) {
	env := map[string]string{"PIPEOPS_CONTROL_PLANE_URL": "https://cp.example.com", "CLUSTER_NAME": "a", "AGENT_TOKEN": "", "POD_NAMESPACE": "production"}
	_, err := load(t, env)
	assert.NotContains(t, fmt.Sprint(err), "PIPEOPS_FIRST_NAMESPACES")
	env["PIPEOPS_FIRST_NAMESPACES"] = "production"
	_, err = load(t, env)
	assert.ErrorContains(t, err, "PIPEOPS_FIRST_NAMESPACES")
}

func TestLoad_SelfUpdate(t *testing.T) {
	c, err := load(t, sound)
	require.NoError(t, err)
	assert.False(t, c.SelfUpdate, "off by default")
	assert.Equal(t, 5*time.Minute, c.UpdateDeadline)

	const key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3" // of minisign's own releases
	c, err = load(t, with(map[string]string{"PIPEOPS_SELF_UPDATE": "true", "PIPEOPS_UPDATE_WINDOW": "Sat,Sun 02:00-04:00 Europe/Berlin",
		"PIPEOPS_UPDATE_KEYS": key, "PIPEOPS_UPDATE_MIRROR": "https://mirror.example.com/pipeops", "PIPEOPS_UPDATE_DEADLINE": "90s"}))
	require.NoError(t, err)
	assert.True(t, c.SelfUpdate)
	trust, err := c.ReleaseTrust("not looked at")
	require.NoError(t, err)
	assert.Len(t, trust.Keys, 1, "the customer's replace those that were built in")
	assert.Equal(t, 1, trust.Signatures)
	windows, err := c.Windows()
	require.NoError(t, err)
	assert.Len(t, windows, 1)

	_, err = load(t, with(map[string]string{"PIPEOPS_SELF_UPDATE": "perhaps", "PIPEOPS_UPDATE_WINDOW": "Sat 25:00-26:00",
		"PIPEOPS_UPDATE_KEYS": "RWx", "PIPEOPS_UPDATE_MIRROR": "http://mirror", "PIPEOPS_UPDATE_DEADLINE": "1s"}))
	for _, want := range []string{"PIPEOPS_SELF_UPDATE: \"perhaps\"", "PIPEOPS_UPDATE_WINDOW: \"Sat 25:00-26:00\"", "PIPEOPS_UPDATE_KEYS: release key",
		"PIPEOPS_UPDATE_MIRROR: is not an https URL", "PIPEOPS_UPDATE_DEADLINE: 1s is not between"} {
		require.ErrorContains(t, err, want)
	}
	_, err = load(t, with(map[string]string{"PIPEOPS_UPDATE_DEADLINE": "soon"}))
	require.ErrorContains(t, err, "PIPEOPS_UPDATE_DEADLINE: \"soon\" is not a duration")
}

func TestReleaseTrust_Signatures(t *testing.T) {
	const first, second = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2", "RWRsQbfKHf78jWA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQT"
	c, err := load(t, with(map[string]string{"PIPEOPS_UPDATE_SIGNATURES": "2", "PIPEOPS_UPDATE_KEYS": first + "," + second}))
	require.NoError(t, err)
	trust, err := c.ReleaseTrust("")
	require.NoError(t, err)
	assert.Equal(t, 2, trust.Signatures)

	c, err = load(t, with(map[string]string{"PIPEOPS_UPDATE_SIGNATURES": "2"}))
	require.NoError(t, err, "the keys of the build are not known to it")
	_, err = c.ReleaseTrust(first)
	require.ErrorContains(t, err, "PIPEOPS_UPDATE_SIGNATURES: 2 signatures are more than the 1 trusted keys can make")

	for number, want := range map[string]string{"0": "is not a number of signatures", "-1": "is not a number of signatures", "3": "more than the 2 trusted keys", "two": "PIPEOPS_UPDATE_SIGNATURES: \"two\""} {
		_, err = load(t, with(map[string]string{"PIPEOPS_UPDATE_SIGNATURES": number, "PIPEOPS_UPDATE_KEYS": first + "," + second}))
		require.ErrorContains(t, err, "PIPEOPS_UPDATE_SIGNATURES: ")
		require.ErrorContains(t, err, want)
	}
	_, err = load(t, with(map[string]string{"PIPEOPS_UPDATE_KEYS": first + "," + first}))
	require.ErrorContains(t, err, "PIPEOPS_UPDATE_KEYS: ")
}

func TestToken_FromFile(t *testing.T) {
	name := file(t, "  secret-token\n")
	c, err := load(t, with(map[string]string{"AGENT_TOKEN_FILE": name}))
	require.NoError(t, err)
	assert.Equal(t, "secret-token", c.Token)
	require.NoError(t, os.WriteFile(name, []byte("a-new-one\n"), 0o600))
	assert.Equal(t, "a-new-one", c.CurrentToken())
	require.NoError(t, os.Remove(name))
	assert.Equal(t, "secret-token", c.CurrentToken())
}

func TestToken_NamesControlPlane(t *testing.T) {
	token, err := controlapi.NewToken("")
	require.NoError(t, err)
	text := token.At("https://cp.example.com:8443").Reveal()
	c, err := load(t, map[string]string{"CLUSTER_NAME": "prod-1", "AGENT_TOKEN": text})
	require.NoError(t, err)
	assert.Equal(t, "https://cp.example.com:8443", c.ControlPlaneURL)
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	assert.Regexp(t, `controlPlaneUrl +https://cp.example.com:8443 +the token`, out.String())

	c, err = load(t, with(map[string]string{"AGENT_TOKEN": text}))
	require.NoError(t, err)
	assert.Equal(t, "https://cp.example.com", c.ControlPlaneURL, "a setting goes before the token")

	_, err = load(t, map[string]string{"CLUSTER_NAME": "prod-1", "AGENT_TOKEN": token.Reveal()})
	require.ErrorContains(t, err, "PIPEOPS_CONTROL_PLANE_URL: is not set")
}

func TestPrint_HidesSecrets(t *testing.T) {
	c, err := load(t, with(map[string]string{"AGENT_TOKEN": "hunter2", "K3S_TOKEN": "hunter3"}))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	shown := out.String() + fmt.Sprintf("%v %+v %#v", c, c, c)
	assert.NotContains(t, shown, "hunter")
	assert.Contains(t, out.String(), "********")
	assert.Regexp(t, `clusterName +prod-1 +CLUSTER_NAME`, out.String())
}

func TestAddFlags_NoneForSecrets(t *testing.T) {
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config.AddFlags(flags)
	assert.Nil(t, flags.Lookup("token"))
	assert.Nil(t, flags.Lookup("k3s-token"))
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("clusterName: a\n"))
	f.Add([]byte("clusterName: [a, b]\nlogLevel: {x: 1}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		config.AddFlags(flags)
		require.NoError(t, flags.Parse([]string{"--config", path}))
		if c, err := config.Load(flags, func(k string) string { return sound[k] }); err == nil && c.ClusterName == "" {
			t.Fatal("accepted without a name")
		}
	})
}
