package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:generate go test . -run TestReference_UpToDate -update

var update = flag.Bool("update", false, "write docs/reference/configuration.md anew")

const referenceFile = "../../docs/reference/configuration.md"

const referenceHead = `# The agent's configuration

<!-- Made from agent/config: go generate ./agent/config -->

The agent takes a setting from the first place that has it: flag, environment variable, the YAML
file that ` + "`--config`" + ` names, default. The agent reports all errors at once, each with its fix. An
unknown key in the file is an error. No flag takes a secret, because any user of the machine can
read process arguments.

` + "`pipeops-agent config get`" + ` shows the effective configuration, where each value comes from, and no
secret.

`

const referenceTail = `
[self-update.md](../cluster-owner/self-update.md) explains the settings of the update.

## Variables of other programs

| environment | meaning |
|---|---|
| ` + "`HTTPS_PROXY`, `NO_PROXY`" + ` | proxy for HTTPS and for the tunnel, and hosts that the agent reaches without it. The proxy is http, https or socks5. If it requires a user and password, set the variable from a Secret ` + "`pipeops-agent-proxy`" + `. The same rules apply to the Kubernetes API |
| ` + "`GOMEMLIMIT`" + ` | soft limit of the process' memory, below that of the pod or unit; the manifest and the service set it to 116MiB |
| ` + "`NOTIFY_SOCKET`, `WATCHDOG_USEC`" + ` | set by systemd: the agent notifies systemd that it is ready, and that it is alive ([service.md](../cluster-owner/service.md)) |

## A file

` + "```yaml" + `
# pipeops-agent run --config agent.yaml
controlPlaneUrl: https://cp.example.com:8443
clusterName: prod-1
tokenFile: /etc/pipeops/token
kubeconfig: /etc/pipeops/kubeconfig
stateDir: /var/lib/pipeops-agent
` + "```" + `
`

func TestReference_UpToDate(t *testing.T) {
	now := reference()
	if *update {
		require.NoError(t, os.WriteFile(referenceFile, now, 0o644))
	}
	committed, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	if !bytes.Equal(now, committed) {
		t.Errorf("%s is not what the settings say; run: go generate ./agent/config", referenceFile)
	}
}

// TestReference_ExampleIsValid keeps the reference's own example from going stale.
func TestReference_ExampleIsValid(t *testing.T) {
	_, file, _ := strings.Cut(referenceTail, "```yaml\n")
	file, _, _ = strings.Cut(file, "```")
	values, err := parseFile("agent.yaml", []byte(file))
	require.NoError(t, err)
	assert.Empty(t, unknownKeys("agent.yaml", values))
	assert.NotEmpty(t, values)
}

func reference() []byte {
	var b bytes.Buffer
	b.WriteString(referenceHead)
	b.WriteString("| key in the file | environment | flag | default | meaning |\n|---|---|---|---|---|\n")
	for _, s := range settings {
		name, def := "–", "–"
		if s.flag != "" {
			name = "`--" + s.flag + "`"
		}
		if s.def != "" {
			def = "`" + s.def + "`"
		}
		usage := s.usage
		if s.secret {
			usage += ". **Secret**"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", s.key, s.env, name, def, usage)
	}
	b.WriteString(referenceTail)
	return b.Bytes()
}
