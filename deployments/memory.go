package deployments

import (
	"errors"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// AgentMemory returns the memory limit of the agent's container and its GOMEMLIMIT, as agent.yaml
// has them. The chart's values and the services repeat them: a test compares these.
func AgentMemory() (limit, soft string, err error) {
	documents, err := readDocuments("agent/deployment.yaml")
	if err != nil {
		return "", "", err
	}
	for _, text := range documents {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(text), &d); err != nil {
			return "", "", err
		}
		if d.Kind != "Deployment" {
			continue
		}
		c := d.Spec.Template.Spec.Containers[0]
		for _, e := range c.Env {
			if e.Name == "GOMEMLIMIT" {
				return c.Resources.Limits.Memory().String(), strings.TrimSpace(e.Value), nil
			}
		}
	}
	return "", "", errors.New("agent/deployment.yaml: the agent's container has no GOMEMLIMIT")
}
