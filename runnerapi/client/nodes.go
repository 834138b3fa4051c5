package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ListNodes reads all nodes.
func (c *Client) ListNodes(ctx context.Context) ([]runnerapi.Node, error) {
	var list runnerapi.NodeList
	_, err := c.call(ctx, newRequest("list-nodes"), &list)
	return list.Items, err
}

// GetNode reads one node.
func (c *Client) GetNode(ctx context.Context, name string) (runnerapi.Node, error) {
	var node runnerapi.Node
	_, err := c.call(ctx, newRequest("get-node", name), &node)
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
	r := newRequest("list-events", namespace)
	r.query = q
	_, err := c.call(ctx, r, &list)
	return list.Items, err
}

// CordonNode keeps new pods off a node.
func (c *Client) CordonNode(ctx context.Context, name string, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	return c.nodeCommand(ctx, newRequest("cordon-node", name), opts)
}

// UncordonNode makes a node schedulable again.
func (c *Client) UncordonNode(ctx context.Context, name string, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	return c.nodeCommand(ctx, newRequest("uncordon-node", name), opts)
}

func (c *Client) nodeCommand(ctx context.Context, r *request, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	var node runnerapi.Node
	_, err := c.call(ctx, r.write(opts), &node)
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
		r := newRequest("drain-node", name).send(options).write(step)
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
