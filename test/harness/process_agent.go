package harness

import (
	"context"
	"os"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

// RunningAgent is pipeops-agent as a process of this machine, as on a VM.
type RunningAgent struct{ *process }

// RunAgent starts pipeops-agent with this environment.
func (s *System) RunAgent(env map[string]string) (*RunningAgent, error) {
	dir, err := os.MkdirTemp(s.Dir, "agent-")
	if err != nil {
		return nil, err
	}
	vars := make([]string, 0, len(env))
	for k, v := range env {
		vars = append(vars, k+"="+v)
	}
	p := newProcess(dir, "agent", s.Binaries.Agent, []string{"run"}, vars)
	return &RunningAgent{p}, p.start()
}

// Log returns the agent's whole log.
func (a *RunningAgent) Log() string {
	text, err := os.ReadFile(a.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// AwaitEnd waits until the agent has ended by itself.
func (a *RunningAgent) AwaitEnd(ctx context.Context) error {
	return Eventually(ctx, "the agent ends", func(context.Context) error {
		if a.running() {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// Close stops the agent.
func (a *RunningAgent) Close() error { return a.stop() }

// OtherCluster starts a second Kubernetes, without nodes, and returns its kubeconfig.
func (s *System) OtherCluster(ctx context.Context) (kubeconfig string, err error) {
	other, err := cluster.Up(ctx, cluster.Options{Name: s.Name + "-other", ControlPlaneOnly: true, Out: s.Out})
	if err != nil {
		return "", err
	}
	s.onClose(other.Down)
	return other.Kubeconfig(), nil
}
