package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Events are the calls about Kubernetes' events. Those of one App come from Apps.Events.
type Events struct{ *core }

// List reads the events of a namespace, the newest first.
func (e Events) List(ctx context.Context, namespace string, filter runnerapi.EventFilter) ([]runnerapi.ClusterEvent, error) {
	q := map[string]string{}
	for name, value := range map[string]string{"kind": filter.Kind, "name": filter.Name, "type": filter.Type} {
		if value != "" {
			q[name] = value
		}
	}
	if filter.Since != 0 {
		q["since"] = filter.Since.String()
	}
	if filter.Limit != 0 {
		q["limit"] = strconv.Itoa(filter.Limit)
	}
	r := newRequest("list-events", namespace)
	r.query = q
	list, err := fetch[runnerapi.EventList](ctx, e.core, r)
	return list.Items, err
}
