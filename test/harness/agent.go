package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

const (
	agentNamespace = "pipeops"
	agentSelector  = "app.kubernetes.io/name=pipeops-agent"
	// agentTimeout is how long the agent may take from the manifest to ready.
	agentTimeout = 8 * time.Minute
	// policyTimeout is how long the agent may take to follow a changed policy.
	policyTimeout = 3 * time.Minute
)

// CreateToken creates an enrolment token.
func (s *System) CreateToken(ctx context.Context, args ...string) (string, error) {
	out, err := s.ControlPlane(ctx, append([]string{"token", "create"}, args...)...)
	return strings.TrimSpace(out), err
}

// DeployAgent applies deployments/agent.yaml, as an operator would, and waits
// until the agent is registered, connected and ready.
func (s *System) DeployAgent(ctx context.Context, name, token string) error {
	ref, err := s.loadProgram(ctx, cluster.Program{
		Package: "./cmd/agent", Name: "pipeops-agent", Ref: "pipeops/agent",
		Version: s.AgentVersion,
	})
	if err != nil {
		return err
	}
	objects, err := s.agentObjects()
	if err != nil {
		return err
	}
	if objects, err = withCoverage(objects); err != nil {
		return err
	}
	if s.Theirs != nil { // a cluster of our own goes away as a whole
		s.onClose(func(ctx context.Context) error { return s.applied.delete(ctx, s.Kube) })
	}
	for _, obj := range objects {
		s.applied.add(obj)
		if err := errors.Join(setImage(obj, ref), s.Kube.Apply(ctx, obj)); err != nil {
			return fmt.Errorf("deployments/agent.yaml: %w", err)
		}
	}
	if s.Theirs != nil {
		s.applied.add(namespaceObject(s.Theirs.Namespace))
	}
	s.EnrolmentToken = token
	for _, obj := range s.settings(name, token) {
		if err := s.Kube.Apply(ctx, obj); err != nil {
			return err
		}
	}
	return s.AwaitAgent(ctx)
}

// AwaitAgent waits until one agent pod is ready, that is, registered and with its tunnel up.
func (s *System) AwaitAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	err := Eventually(ctx, "the agent is ready", func(ctx context.Context) error {
		pod, err := s.AgentPod(ctx)
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
	})
	if err != nil {
		return fmt.Errorf("%w\nthe agent's last lines:\n%s", err, s.AgentLog(context.WithoutCancel(ctx), 15))
	}
	return nil
}

// AwaitPolicy waits until the agent tells a Runner that its policy is in a state.
func (s *System) AwaitPolicy(ctx context.Context, runner, agent, state string) error {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	return Eventually(ctx, "the policy is "+state, func(ctx context.Context) error {
		out, err := s.Runner(ctx, runner, "cluster", agent, "-o", "json")
		if err == nil && !strings.Contains(out, fmt.Sprintf(`"state": %q`, state)) {
			err = fmt.Errorf("cluster: %s", out)
		}
		return err
	})
}

// StartProduct starts the control plane, creates Runners, and deploys an agent.
func (s *System) StartProduct(ctx context.Context, agent string, runners ...string) error {
	if err := s.StartControlPlane(ctx); err != nil {
		return err
	}
	for _, name := range runners {
		if _, err := s.CreateRunner(ctx, name); err != nil {
			return err
		}
	}
	token, err := s.CreateToken(ctx)
	if err != nil {
		return err
	}
	return s.DeployAgent(ctx, agent, token)
}

// AgentPod returns the agent's pod; there is one that is not on its way out.
func (s *System) AgentPod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := s.AgentPods(ctx)
	if err == nil && len(pods) == 0 {
		err = errors.New("the agent has no pod")
	}
	if err != nil {
		return nil, err
	}
	return &pods[0], nil
}

// KillAgent deletes the agent's pod without grace: the process is gone at once.
func (s *System) KillAgent(ctx context.Context) error {
	pod, err := s.AgentPod(ctx)
	if err != nil {
		return err
	}
	return s.Kube.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

// AgentLog returns the end of the agent's log, or why it cannot be read.
func (s *System) AgentLog(ctx context.Context, lines int64) string {
	pod, err := s.AgentPod(ctx)
	if err != nil {
		return err.Error()
	}
	text, err := s.Kube.Clientset.CoreV1().Pods(agentNamespace).
		GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
