package workloadhealth

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
)

// NewFromPods returns a Checker for namespaces in which the agent may read workloads and pods, and
// nothing else. It makes no requests for events, logs and ports.
func NewFromPods(rc *rest.Config, s diagnose.Stabilization) *Checker {
	c := New(rc, s)
	c.podsAlone = true
	return c
}

// blind reads no events.
type blind struct{ client.Reader }

// List implements client.Reader.
func (b blind) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, is := list.(*corev1.EventList); is {
		return nil
	}
	return b.Reader.List(ctx, list, opts...)
}
