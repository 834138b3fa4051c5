package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func nodeURL(name string) string { return "/nodes/" + url.PathEscape(name) }

// ListNodes reads all nodes.
func (c *Client) ListNodes(ctx context.Context) ([]runnerapi.Node, error) {
	var list runnerapi.NodeList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: "/nodes"}, &list)
	return list.Items, err
}

// GetNode reads one node.
func (c *Client) GetNode(ctx context.Context, name string) (runnerapi.Node, error) {
	var node runnerapi.Node
	_, err := c.call(ctx, &request{method: http.MethodGet, path: nodeURL(name)}, &node)
	return node, err
}

// ListEvents reads the events of a namespace, the newest first.
func (c *Client) ListEvents(ctx context.Context, namespace string, filter runnerapi.EventFilter) ([]runnerapi.ClusterEvent, error) {
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
	var list runnerapi.EventList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: namespaceURL(namespace) + "/events", query: q}, &list)
	return list.Items, err
}

// CordonNode keeps new pods off a node.
func (c *Client) CordonNode(ctx context.Context, name string, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	return c.nodeCommand(ctx, nodeURL(name)+"/cordon", opts)
}

// UncordonNode makes a node schedulable again.
func (c *Client) UncordonNode(ctx context.Context, name string, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	return c.nodeCommand(ctx, nodeURL(name)+"/uncordon", opts)
}

func (c *Client) nodeCommand(ctx context.Context, path string, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	var node runnerapi.Node
	_, err := c.call(ctx, (&request{method: http.MethodPost, path: path}).write(opts), &node)
	return node, err
}

// DrainNode cordons a node and evicts its pods until none is left. It reports the progress every
// other second. If ctx ends first, it returns the progress with ctx's error. Evicted pods stay
// evicted, and another call continues. Each report belongs to a command of its own: with an
// Idempotency-Key their keys are KEY-1, KEY-2 and so on. A caller that repeats the call gets the
// same reports again, and then the drain continues.
func (c *Client) DrainNode(ctx context.Context, name string, options runnerapi.DrainOptions, opts runnerapi.WriteOptions, report func(runnerapi.Drain)) (runnerapi.Drain, error) {
	var evicted []string
	last := runnerapi.Drain{Node: name}
	for n := 1; ; n++ {
		step := runnerapi.WriteOptions{DryRun: opts.DryRun}
		if opts.IdempotencyKey != "" {
			step.IdempotencyKey = opts.IdempotencyKey + "-" + strconv.Itoa(n)
		}
		r := (&request{method: http.MethodPost, path: nodeURL(name) + "/drain", body: options}).write(step)
		if !opts.DryRun {
			r.query = map[string]string{"wait": progressWait.String()}
		}
		var now runnerapi.Drain
		if _, err := c.call(ctx, r, &now); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return last, err
		}
		evicted = append(evicted, now.Evicted...)
		now.Evicted = evicted
		last = now
		report(last)
		if last.Done || opts.DryRun {
			return last, nil
		}
	}
}
