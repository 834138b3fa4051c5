package components

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

//go:embed values/*.yaml
var ownValues embed.FS

//go:embed digests.yaml
var digestsFile []byte

// ofFile are the limits of a file that the person who installs writes.
var ofFile = decode.Limits{Bytes: 1 << 20, Values: 50_000, Aliases: 1000, Expanded: 1 << 20, Depth: 50}

// values returns the values for a chart: ours, those of a small machine, and the customer's last.
func values(chart string, small bool, agentNamespace string, customer map[string]any) (map[string]any, error) {
	out, err := embedded(chart, agentNamespace)
	if err != nil {
		return nil, err
	}
	if chart == "prometheus" {
		rules, err := alertRules()
		if err != nil {
			return nil, err
		}
		merge(out, rules)
	}
	if small {
		less, err := embedded(chart+".small", agentNamespace)
		if err != nil {
			return nil, err
		}
		merge(out, less)
	}
	merge(out, customer)
	return out, nil
}

// embedded returns the values of the embedded file with this name, for an agent in a namespace.
// Without such a file it returns an empty map.
func embedded(name, agentNamespace string) (map[string]any, error) {
	out := map[string]any{}
	data, err := ownValues.ReadFile("values/" + name + ".yaml")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out, nil
	case err != nil:
		return nil, fmt.Errorf("values of chart %s: %w", name, err)
	}
	if err := ofFile.LooseYAML(ofAgentIn(agentNamespace, data), &out); err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", name, err)
	}
	return out, nil
}

// ofAgentIn replaces the agent's usual namespace: Prometheus scrapes it there, and Alertmanager
// sends alerts there.
func ofAgentIn(namespace string, values []byte) []byte {
	for _, at := range []string{"pipeops-agent-metrics.%s.svc", "names: [%s]"} {
		values = bytes.ReplaceAll(values, fmt.Appendf(nil, at, namespaceSystem), fmt.Appendf(nil, at, namespace))
	}
	return values
}

// merge puts values of b into a, as Helm merges values files.
func merge(a, b map[string]any) {
	for key, value := range b {
		next, isMap := value.(map[string]any)
		had, wasMap := a[key].(map[string]any)
		if isMap && wasMap {
			merge(had, next)
			continue
		}
		if isMap {
			value = maps.Clone(next)
		}
		a[key] = value
	}
}

// digests returns the digests of this build, by chart and version.
func digests() (map[string]string, error) {
	out := map[string]string{}
	if err := ofFile.LooseYAML(digestsFile, &out); err != nil {
		return nil, fmt.Errorf("the digests of charts: %w", err)
	}
	return out, nil
}
