package workloadhealth

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
)

// unhealthy is the reason of the kubelet's events about probes.
const unhealthy = "Unhealthy"

// What is read of an object's events and of the nodes is bounded.
const (
	maxEvents = 50
	maxNodes  = 100
)

// lookAtNode asks for a pod's node where the diagnosis hangs on it. Watching all
// nodes would cost memory for each, and news for each change of their status.
func (g Gatherer) lookAtNode(ctx context.Context, pod *corev1.Pod, ev *diagnose.Evidence) error {
	name := pod.Spec.NodeName
	if _, known := ev.Nodes[name]; known || !diagnose.WantsNode(pod, ev.Now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list corev1.NodeList // a list of one: the agent may list nodes, for its heartbeat, and nothing else
	if err := g.Live.List(ctx, &list, client.MatchingFields{"metadata.name": name}); err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	ev.Nodes[name] = nil
	if len(list.Items) > 0 {
		ev.Nodes[name] = &list.Items[0]
	}
	return nil
}

// someNodes returns the first nodes of the cluster.
func (g Gatherer) someNodes(ctx context.Context) ([]*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list corev1.NodeList
	if err := g.Live.List(ctx, &list, client.Limit(maxNodes)); err != nil {
		return nil, fmt.Errorf("read the nodes' taints: %w", err)
	}
	var out []*corev1.Node
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

func byUID(o client.Object) client.MatchingFields {
	return client.MatchingFields{"involvedObject.uid": string(o.GetUID())}
}

// newestEvent returns the message of the newest event of these reasons about what is selected in
// the namespace, or empty.
func (g Gatherer) newestEvent(ctx context.Context, of client.MatchingFields, reasons ...string) (string, error) {
	said, err := g.newestEvents(ctx, of, reasons...)
	var newest saying
	for _, s := range said {
		if newest.message == "" || s.at.After(newest.at) {
			newest = s
		}
	}
	return newest.message, err
}

// saying is an event's message, and its last time.
type saying struct {
	at      time.Time
	message string
}

// newestEvents returns the newest messages by their reason.
func (g Gatherer) newestEvents(ctx context.Context, of client.MatchingFields, reasons ...string) (map[string]saying, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list corev1.EventList
	if err := g.Live.List(ctx, &list, client.InNamespace(g.Namespace), client.Limit(maxEvents), of); err != nil {
		return nil, fmt.Errorf("read the events about %s: %w", g.Name, err)
	}
	g.listened(of, list.ResourceVersion, reasons)
	said := map[string]saying{}
	for i := range list.Items {
		e := &list.Items[i]
		if !slices.Contains(reasons, e.Reason) {
			continue
		}
		if at := lastSeen(e); said[e.Reason].message == "" || at.After(said[e.Reason].at) {
			said[e.Reason] = saying{at, e.Message}
		}
	}
	return said, nil
}

// probeFailures reads what the probes got from the pod's events: the one
// signal that is not in the pod's status. They are asked for when a pod is
// about to be diagnosed, instead of watching all events of a cluster.
func (g Gatherer) probeFailures(ctx context.Context, pod *corev1.Pod) (diagnose.ProbeFailures, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list corev1.EventList
	of := client.MatchingFields{"involvedObject.uid": string(pod.UID), "reason": unhealthy}
	if err := g.Live.List(ctx, &list, client.InNamespace(pod.Namespace), client.Limit(maxEvents), of); err != nil {
		return nil, fmt.Errorf("read the events of pod %s: %w", pod.Name, err)
	}
	g.listened(of, list.ResourceVersion, []string{unhealthy})
	failures := diagnose.ProbeFailures{}
	for i := range list.Items {
		kind, answer, ok := diagnose.ParseProbeEvent(list.Items[i].Message)
		if !ok {
			continue
		}
		known := failures[kind]
		if at := lastSeen(&list.Items[i]); at.After(known.Time) {
			known.Answer, known.Time = answer, at
		}
		if first := firstSeen(&list.Items[i]); known.First.IsZero() || first.Before(known.First) {
			known.First = first
		}
		failures[kind] = known
	}
	return failures, nil
}

// A StatefulSet's pods follow one another when there are seconds between them; what is
// longer ago than recently does not count.
const (
	closely  = 15 * time.Second
	recently = time.Minute
)

// recreated returns how many pods a StatefulSet deleted lately, one right after the other.
func (g Gatherer) recreated(ctx context.Context, w client.Object, now time.Time) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list corev1.EventList
	of := byUID(w)
	if err := g.Live.List(ctx, &list, client.InNamespace(g.Namespace), client.Limit(maxEvents), of); err != nil {
		return 0, fmt.Errorf("read the events about %s: %w", g.Name, err)
	}
	reasons := []string{"SuccessfulDelete"}
	g.listened(of, list.ResourceVersion, reasons)
	for i := range list.Items {
		ev := &list.Items[i]
		count := int(ev.Count)
		if ev.Series != nil {
			count = int(ev.Series.Count)
		}
		last := lastSeen(ev)
		if !slices.Contains(reasons, ev.Reason) || now.Sub(last) > recently || last.Sub(firstSeen(ev)) > time.Duration(count)*closely {
			continue
		}
		n += max(count, 1)
	}
	return n, nil
}

// firstSeen returns when an event happened first.
func firstSeen(ev *corev1.Event) time.Time {
	return cmp.Or(ev.FirstTimestamp.Time, ev.EventTime.Time)
}

// lastSeen returns when an event happened last, in whichever of its fields.
func lastSeen(ev *corev1.Event) time.Time {
	switch {
	case ev.Series != nil:
		return ev.Series.LastObservedTime.Time
	case !ev.LastTimestamp.IsZero():
		return ev.LastTimestamp.Time
	}
	return ev.EventTime.Time
}

func (g Gatherer) listened(of client.MatchingFields, version string, reasons []string) {
	if g.Listened != nil {
		g.Listened(fields.Set(of), version, reasons)
	}
}
