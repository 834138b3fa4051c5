package composefile

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// The fields of a service: those that conversion reads, and those that change nothing about what
// the service does in a cluster. An App cannot be what any other says.
var (
	read = []string{
		"image", "command", "entrypoint", "environment", "env_file", "ports", "expose", "volumes", "tmpfs", "deploy", "scale", "cpus", "mem_limit",
		"mem_reservation", "healthcheck", "user", "read_only", "cap_add", "stop_grace_period", "depends_on", "privileged", "gpus",
	}
	harmless = []string{
		"restart", "container_name", "labels", "label_file", "logging", "networks", "attach", "pull_policy", "hostname", "init", "stdin_open", "tty",
		"platform", "develop", "annotations", "links", "build", "profiles", "cap_drop", "security_opt", "stop_signal", "pids_limit", "ulimits",
		"shm_size", "oom_score_adj", "memswap_limit", "mem_swappiness", "cpu_shares",
	}
)

// noted are the harmless fields that a reader may miss.
var noted = []string{"ulimits", "shm_size", "security_opt", "stop_signal", "hostname", "pids_limit"}

// fields refuses each field that has no meaning for an App.
func (c *conversion) fields() {
	text, err := json.Marshal(c.service)
	set := map[string]json.RawMessage{}
	if err != nil || json.Unmarshal(text, &set) != nil {
		return // what the loader has made has a form
	}
	var ignored []string
	for _, field := range slices.Sorted(maps.Keys(set)) {
		switch {
		case string(set[field]) == "null" || slices.Contains(read, field):
		case !slices.Contains(harmless, field):
			c.cannot(field, "an App has nothing like it; leave it out")
		case slices.Contains(noted, field):
			ignored = append(ignored, field)
		}
	}
	if len(ignored) > 0 {
		c.note("ignored: %s", strings.Join(ignored, ", "))
	}
}

// meaning refuses what an App would do otherwise.
func (c *conversion) meaning() {
	s := c.service
	if s.Restart == types.RestartPolicyNo && c.endsFirst() {
		c.cannot("restart", "the service runs once before others: run it as a job (pipeops-runner job run), and leave it out here")
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependsOn)) {
		if s.DependsOn[name].Condition == types.ServiceConditionCompletedSuccessfully {
			c.cannot("depends_on."+name, "it runs once: run it as a job (pipeops-runner job run), and leave it out here")
		}
	}
	if s.Deploy != nil {
		c.placement(*s.Deploy)
	}
}

// nodeLabel is a constraint that an App can have.
var nodeLabel = regexp.MustCompile(`^\s*node\.labels\.([^\s=!]+)\s*==\s*(\S+)\s*$`)

// placement takes over which labels nodes must have.
func (c *conversion) placement(d types.DeployConfig) {
	ignored := d.Mode == "global" || len(d.Placement.Preferences) > 0
	for _, text := range d.Placement.Constraints {
		label := nodeLabel.FindStringSubmatch(text)
		if label == nil {
			ignored = true
			continue
		}
		if c.out.Spec.NodeSelector == nil {
			c.out.Spec.NodeSelector = map[string]string{}
		}
		c.out.Spec.NodeSelector[label[1]] = label[2]
	}
	if ignored {
		c.note("ignored: deploy.mode, deploy.placement.preferences, and placement.constraints other than node.labels.KEY == VALUE")
	}
}

// endsFirst reports whether another service waits for the end of this one.
func (c *conversion) endsFirst() bool {
	for _, other := range c.project.Services {
		if other.DependsOn[c.service.Name].Condition == types.ServiceConditionCompletedSuccessfully {
			return true
		}
	}
	return false
}
