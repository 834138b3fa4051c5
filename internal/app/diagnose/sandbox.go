package diagnose

import (
	"fmt"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// sandboxPatience is how long a sandbox may fail that works soon after, for example while the
// network plugin of a new node starts.
const sandboxPatience = 30 * time.Second

// sandbox finds a pod whose sandbox, in which its containers would run, the node cannot create. The
// pod does not say so; an event does.
func sandbox(c container, ev *Evidence) Finding {
	since, waits := preparing(c.pod)
	message := ev.Sandboxes[c.pod.UID]
	if !waits || message == "" {
		return Finding{}
	}
	waited := ev.Now.Sub(since)
	switch {
	case isOOMKill(message):
		return Finding{Diagnosis: c.smothered(), Recheck: later(waited)}
	case waited < sandboxPatience:
		return Finding{Recheck: sandboxPatience - waited}
	}
	return Finding{Recheck: later(waited), Diagnosis: c.diagnosis(runnerapi.CauseUnknown,
		fmt.Sprintf("node %s cannot create the pod's sandbox: %s", c.pod.Spec.NodeName, clip(message)),
		"look at the container runtime and the network plugin of node "+c.pod.Spec.NodeName+"; the pod starts by itself once they work")}
}

// isOOMKill reports whether a runtime says that the memory limit left no room to start a process.
func isOOMKill(message string) bool {
	return strings.Contains(message, "OOM-killed") || strings.Contains(message, "oom-killed")
}
