package components

import (
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// notHere is the group of alert rules about the control plane, which no Prometheus of a cluster
// scrapes.
const notHere = "pipeops-controlplane"

// alertRules returns our alert rules, as values of Prometheus' chart.
func alertRules() (map[string]any, error) {
	var groups []any
	for _, text := range [][]byte{deployments.Rules, deployments.ClusterRules} {
		var file struct {
			Groups []map[string]any `json:"groups"`
		}
		if err := ofFile.LooseYAML(text, &file); err != nil {
			return nil, fmt.Errorf("alert rules: %w", err)
		}
		for _, g := range file.Groups {
			if g["name"] != notHere {
				groups = append(groups, g)
			}
		}
	}
	return map[string]any{"serverFiles": map[string]any{"alerting_rules.yml": map[string]any{"groups": groups}}}, nil
}
