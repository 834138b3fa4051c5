package agent

import (
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
)

// RecordingStore returns where an agent of that configuration keeps recordings of sessions: beside
// its audit log.
func RecordingStore(c config.Config, k *kube.Client) recording.Store {
	if c.StateDir != "" {
		return recording.Files{Dir: filepath.Join(c.StateDir, "recordings")}
	}
	return k.RecordingStore()
}
