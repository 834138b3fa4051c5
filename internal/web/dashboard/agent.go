package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// agentState is how the agent is, as far as the cluster or the agent itself tells.
type agentState struct {
	State   string // ready, not ready, absent or unknown
	Version string
	Image   string
	Detail  string
	Where   string
	Pods    []agentPod
	Wrong   []trouble
	Problem *problem.Error // why this is unknown
	// Since is when the agent was seen not to be ready first; the zero time while it is.
	Since time.Time
	// Tunnel and ControlPlane are what the agent connects to, as far as it can be asked.
	Tunnel, ControlPlane link

	asked bool // the agent itself has answered
}

// link is a connection of the agent.
type link struct {
	State  string // up, degraded, down or unknown
	Detail string
	Since  time.Time // when it was seen first that it is not up
}

type agentPod struct {
	Name, State, Node string
	Restarts          int32
	Since             time.Time
}

// askTimeout bounds how long a page waits for the agent itself.
const askTimeout = 3 * time.Second

// agent returns how the agent is: of this machine, or in pods. It names since when something is
// away.
func (d *site) agent(ctx context.Context) agentState {
	var found agentState
	if d.opts.Readiness != nil {
		found = d.agentOfMachine(ctx)
	} else {
		found = d.agentInPods(ctx)
	}
	found.connect(d.outages)
	return found
}

func (d *site) agentInPods(ctx context.Context) agentState {
	own, err := d.cluster.facts.Own(ctx)
	if p := unread(err, "reading the agent's Deployment"); p != nil {
		s := agentState{State: "unknown", Problem: p, Where: "namespace " + d.opts.Namespace}
		if p.Code == problem.NotFound {
			s.State, s.Problem = "absent", nil
			s.Wrong = []trouble{{Title: "The agent is not installed", Tone: "bad",
				Detail: "Namespace " + d.opts.Namespace + " has no Deployment pipeops-agent.",
				Fix:    "install it (docs/cluster-owner/install.md). If it runs as a service of a machine, start the dashboard there with --service."}}
		}
		return s
	}
	s := agentState{Image: own.Image, Version: tagOf(own.Image), Where: "namespace " + d.opts.Namespace}
	selector, err := metav1.LabelSelectorAsSelector(own.Deployment.Spec.Selector)
	var pods corev1.PodList
	if err == nil {
		err = d.cluster.client.List(ctx, &pods, client.InNamespace(d.opts.Namespace), client.MatchingLabelsSelector{Selector: selector})
	}
	if s.Problem = unread(err, "reading the agent's pods"); s.Problem != nil {
		s.State = "unknown"
		return s
	}
	s.readPods(ctx, pods.Items, d.cluster.readiness)
	for _, c := range own.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status != corev1.ConditionTrue && s.State != "ready" {
			s.Since = c.LastTransitionTime.Time
		}
	}
	if own.Replicas() == 0 {
		s.State, s.Detail = "not ready", "stopped: its Deployment asks for no pods"
		s.Wrong = []trouble{{Title: "The agent is stopped", Tone: "bad", Detail: "Its Deployment asks for no pods. Apps run on.",
			Fix: "kubectl -n " + d.opts.Namespace + " scale deployment pipeops-agent --replicas 1"}}
	}
	return s
}

// agentOfMachine asks the agent that is a service of this machine.
func (d *site) agentOfMachine(ctx context.Context) agentState {
	s := agentState{Where: "service of this machine"}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := d.opts.Readiness(ctx)
	if err != nil {
		s.State, s.Detail = "not ready", "it does not respond"
		s.Wrong = []trouble{{Title: "The agent does not respond", Tone: "bad", Detail: err.Error(),
			Fix: "systemctl status pipeops-agent; journalctl -u pipeops-agent -n 50"}}
		return s
	}
	s.report(r)
	return s
}

// connect finds out how the agent's connections are, and since when something is away.
func (s *agentState) connect(o *outages) {
	if since := o.saw("agent", s.State == "not ready" || s.State == "absent"); s.Since.IsZero() {
		s.Since = since
	}
	switch {
	case s.asked: // it has said so
	case s.State == "not ready" || s.State == "absent":
		s.Tunnel = link{State: "down", Detail: "the agent makes the tunnel, and it does not respond"}
		s.ControlPlane = link{State: "unknown", Detail: "the agent cannot be asked"}
	default:
		s.Tunnel = link{State: "unknown", Detail: "the agent cannot be asked"}
		s.ControlPlane = s.Tunnel
	}
	for name, l := range map[string]*link{"tunnel": &s.Tunnel, "control plane": &s.ControlPlane} {
		if since := o.saw(name, l.State == "down" || l.State == "degraded"); l.Since.IsZero() {
			l.Since = since
		}
	}
}

// links takes over what the agent reports of its connections.
func (s *agentState) links(r Readiness) {
	s.asked, s.Tunnel, s.ControlPlane = true, link{State: "up"}, link{State: "up"}
	for _, line := range slices.Concat(r.Missing, r.Worse) {
		switch check, detail, _ := strings.Cut(line, ": "); check {
		case "tunnel":
			s.Tunnel = link{State: "down", Detail: detail}
		case "tunnels":
			s.Tunnel = link{State: "degraded", Detail: detail}
		case "control plane":
			s.ControlPlane = link{State: "down", Detail: detail}
			if text, why, found := strings.Cut(strings.TrimPrefix(detail, "no answer since "), ": "); found {
				if at, err := time.Parse(time.RFC3339, text); err == nil {
					s.ControlPlane.Detail, s.ControlPlane.Since = why, at
				}
			}
		}
	}
}

// report takes over what the agent reports of itself.
func (s *agentState) report(r Readiness) {
	s.links(r)
	s.State, s.Version = "not ready", cmp.Or(r.Version, s.Version)
	if r.Ready {
		s.State = "ready"
	}
	s.Detail = "tunnel, identity, Apps and policy are in order"
	checks := make([]string, 0, len(r.Missing))
	for _, line := range r.Missing {
		check, state, _ := strings.Cut(line, ": ")
		checks = append(checks, check)
		s.Wrong = append(s.Wrong, trouble{Title: cmp.Or(wrongOf[check], "Agent: "+check), Detail: web.Sentence(cmp.Or(state, line)), Tone: "bad", Href: "/doctor",
			Fix: "run the checks on the page Doctor"})
	}
	if len(checks) > 0 {
		s.Detail = "not in order: " + strings.Join(checks, ", ")
	}
	for _, line := range r.Worse {
		check, state, _ := strings.Cut(line, ": ")
		if title := wrongOf[check]; title != "" {
			s.Wrong = append(s.Wrong, trouble{Title: title, Detail: web.Sentence(state), Tone: "warn", Href: "/doctor"})
			continue
		}
		s.Wrong = append(s.Wrong, trouble{Title: "Agent: degraded", Detail: line, Tone: "warn", Href: "/doctor"})
	}
}

// wrongOf are the titles of what is wrong, by the agent's check.
var wrongOf = map[string]string{
	"tunnel": "The tunnel is down", "tunnels": "A tunnel is down", "control plane": "The control plane does not answer", "apps": "The agent does not keep Apps yet",
}

// readPods takes over what the agent's pods report. One that is ready speaks for all.
func (s *agentState) readPods(ctx context.Context, pods []corev1.Pod, ask func(context.Context, *corev1.Pod) (Readiness, error)) {
	s.State, s.Detail = "not ready", "no pod is ready"
	var best *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		ready := workload.PodReady(pod)
		shown := agentPod{Name: pod.Name, Node: pod.Spec.NodeName, Since: pod.CreationTimestamp.Time, State: string(pod.Status.Phase)}
		for _, c := range pod.Status.ContainerStatuses {
			shown.Restarts += c.RestartCount
			if c.State.Waiting != nil {
				shown.State = c.State.Waiting.Reason
			}
		}
		if ready {
			shown.State = "Ready"
		}
		s.Pods = append(s.Pods, shown)
		if best == nil || ready && !workload.PodReady(best) {
			best = pod
		}
	}
	if best == nil {
		s.Wrong = append(s.Wrong, trouble{Title: "The agent has no pod", Detail: "Its Deployment has made none yet.", Tone: "bad"})
		return
	}
	if workload.PodReady(best) {
		s.State, s.Detail = "ready", fmt.Sprintf("pod %s is ready", best.Name)
	}
	if ask == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if r, err := ask(ctx, best); err == nil {
		s.report(r)
		return
	}
	if s.State != "ready" {
		s.Wrong = append(s.Wrong, trouble{Title: "The agent is not ready", Detail: "Pod " + best.Name + " is not ready, and does not respond.", Tone: "bad",
			Fix: "kubectl -n " + best.Namespace + " logs " + best.Name})
	}
}

// tagOf returns the tag of an image.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	return ""
}
