package main

import (
	"bytes"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
)

const configurationHead = `# The agent's configuration

<!-- Made from agent/config: go generate ./docs -->

The agent takes a setting from the first place that has it: flag, environment variable, the YAML
file that ` + "`--config`" + ` names, default. The agent reports all errors at once, each with its fix. An
unknown key in the file is an error. No flag takes a secret, because any user of the machine can
read process arguments.

` + "`pipeops-agent config get`" + ` shows the effective configuration, where each value comes from, and no
secret.

`

const configurationTail = `
[self-update.md](../cluster-owner/self-update.md) explains the settings of the update.

## Variables of other programs

| environment | meaning |
|---|---|
| ` + "`HTTPS_PROXY`, `NO_PROXY`" + ` | proxy for HTTPS and for the tunnel, and hosts that the agent reaches without it. The proxy is http, https or socks5. If it requires a user and password, set the variable from a Secret ` + "`pipeops-agent-proxy`" + `. The same rules apply to the Kubernetes API |
| ` + "`GOMEMLIMIT`" + ` | soft limit of the process' memory, below that of the pod or unit; the manifest and the services set it |
| ` + "`NOTIFY_SOCKET`, `WATCHDOG_USEC`" + ` | set by systemd: the agent notifies systemd that it is ready, and that it is alive ([service.md](../cluster-owner/service.md)) |

## Configuration file

` + "```yaml" + `
# pipeops-agent run --config agent.yaml
controlPlaneUrl: https://cp.example.com:8443
clusterName: prod-1
tokenFile: /etc/pipeops/token
kubeconfig: /etc/pipeops/kubeconfig
stateDir: /var/lib/pipeops-agent
` + "```" + `

` + "`deployments/config.yaml`" + ` of a release has every setting with its default, commented out. The
packages put it at ` + "`/usr/share/doc/pipeops-agent/config.yaml`" + `.
`

func configuration() []byte {
	var b bytes.Buffer
	b.WriteString(configurationHead)
	b.WriteString("| key in the file | environment | flag | default | meaning |\n|---|---|---|---|---|\n")
	for _, s := range config.Documented() {
		name, def := "–", "–"
		if s.Flag != "" {
			name = "`--" + s.Flag + "`"
		}
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		usage := s.Usage
		if s.Secret {
			usage += ". **Secret**"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", s.Key, s.Env, name, def, usage)
	}
	b.WriteString(configurationTail)
	return b.Bytes()
}
