package kube

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// Events are the cluster's events. It implements backend.Events.
type Events struct{ *Client }

var _ backend.Events = Events{}

// Events returns the cluster's events.
func (k *Client) Events() Events { return Events{k} }

// List implements backend.Events. For any number of events, it holds no more than a page and
// those that it returns.
func (k Events) List(ctx context.Context, namespace string, filter runnerapi.EventFilter) ([]runnerapi.ClusterEvent, error) {
	if err := k.admit(ctx, namespace); err != nil {
		return nil, err
	}
	newest, err := k.newest(ctx, namespace, filter)
	if err != nil {
		return nil, kubeproblem.From(err, "reading the events of namespace "+namespace)
	}
	return newest, nil
}

// ofNode returns a node's, which Kubernetes keeps in namespace default: nil where the agent may
// not read them there, as node-rights.yaml lets it.
func (k Events) ofNode(ctx context.Context, name string) ([]runnerapi.ClusterEvent, error) {
	newest, err := k.newest(ctx, metav1.NamespaceDefault, runnerapi.EventFilter{Kind: "Node", Name: name, Limit: runnerapi.MaxNodeEvents})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return newest, kubeproblem.From(err, "reading the events of node "+name)
}

func (k Events) newest(ctx context.Context, namespace string, filter runnerapi.EventFilter) ([]runnerapi.ClusterEvent, error) {
	limit := filter.Limit
	if limit <= 0 || limit > runnerapi.MaxEvents {
		limit = runnerapi.MaxEvents
	}
	var oldest time.Time
	if filter.Since > 0 {
		oldest = time.Now().Add(-filter.Since)
	}
	var newest []runnerapi.ClusterEvent
	err := k.pages(ctx, &corev1.EventList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.EventList).Items {
			if e := eventOf(&list.(*corev1.EventList).Items[i]); !e.LastSeen.Before(oldest) {
				newest = append(newest, e)
			}
		}
		slices.SortStableFunc(newest, func(a, b runnerapi.ClusterEvent) int {
			return cmp.Or(b.LastSeen.Compare(a.LastSeen), cmp.Compare(a.Object.Name, b.Object.Name))
		})
		newest = newest[:min(len(newest), limit)]
		return nil
	}, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: eventSelector(filter)})
	return newest, err
}

func eventSelector(filter runnerapi.EventFilter) fields.Selector {
	set := fields.Set{}
	for field, value := range map[string]string{
		"involvedObject.kind": filter.Kind, "involvedObject.name": filter.Name, "type": filter.Type,
	} {
		if value != "" {
			set[field] = value
		}
	}
	return set.AsSelector()
}

// eventOf reads an event of either API: those of events.k8s.io/v1 have an event
// time and a series instead of first and last times and a count.
func eventOf(e *corev1.Event) runnerapi.ClusterEvent {
	out := runnerapi.ClusterEvent{
		Namespace: e.Namespace, Type: e.Type, Reason: e.Reason, Message: e.Message,
		Object: runnerapi.EventOf{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name},
		Source: cmp.Or(e.Source.Component, e.ReportingController), Count: max(e.Count, 1),
		FirstSeen: cmp.Or(e.FirstTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time),
		LastSeen:  cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time),
	}
	if s := e.Series; s != nil {
		out.Count, out.LastSeen = max(s.Count, 1), cmp.Or(s.LastObservedTime.Time, out.LastSeen)
	}
	return out
}
