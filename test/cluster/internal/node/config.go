// Package node runs inside a test cluster's namespaces. It is process 1, which sets up mounts and
// network, serves the image registry, and starts and supervises the cluster's components. Package
// cluster chooses the components and passes them in a Config.
package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Paths within the namespaces. They are fixed, and so independent of where the
// cache is, which the private /run and /var/lib may well hide.
const (
	Dir      = "/run/cluster"
	PartsDir = "/run/parts"

	configFile = "node.json"
	eventsFile = "events.jsonl"
	// LogDir is where the components' logs are, below the cluster's directory.
	LogDir = "logs"
)

// Config is the configuration of process 1.
type Config struct {
	Hostname string `json:"hostname"`
	// Address is eth0's, with its prefix length; Gateway is the machine's end.
	Address  string `json:"address"`
	Gateway  string `json:"gateway"`
	CgroupV2 bool   `json:"cgroupV2"`
	// Parts are directories of the machine to be seen at PartsDir/NAME.
	Parts map[string]string `json:"parts"`
	// Registry is the address to serve images at, or empty; Blobs are read-only
	// directories of blobs that it also serves.
	Registry   string      `json:"registry"`
	Blobs      []string    `json:"blobs"`
	Components []Component `json:"components"`
}

// Component is a process. Components are started in order; each must be ready
// before the next one starts.
type Component struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	Ready   Probe    `json:"ready"`
}

// Event is one line of the journal that process 1 keeps of the start.
type Event struct {
	At     time.Time `json:"at"`
	Kind   EventKind `json:"kind"`
	Name   string    `json:"name"`
	Detail string    `json:"detail,omitempty"`
}

// EventKind is what happened to the component in an event.
type EventKind string

// The kinds of events. Up stands for the whole node.
const (
	Started   EventKind = "started"
	Ready     EventKind = "ready"
	Restarted EventKind = "restarted"
	Failed    EventKind = "failed"
	Up        EventKind = "up"
)

// Save writes the configuration into a cluster's directory.
func (c Config) Save(dir string) error {
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("save node configuration: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, configFile), content, 0o600)
}

func load(dir string) (Config, error) {
	var config Config
	content, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return config, fmt.Errorf("load node configuration: %w", err)
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return config, fmt.Errorf("load node configuration: %w", err)
	}
	return config, nil
}
