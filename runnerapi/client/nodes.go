package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Nodes are the calls about the nodes of the cluster, and about how a machine becomes one.
type Nodes struct{ *core }

// JoinCommand returns how a machine becomes a worker of the cluster.
func (n Nodes) JoinCommand(ctx context.Context) (runnerapi.JoinCommand, error) {
	return fetch[runnerapi.JoinCommand](ctx, n.core, newRequest("get-join-command"))
}

// JoinToken returns the token for that, where the policy names the command.
func (n Nodes) JoinToken(ctx context.Context) (runnerapi.JoinToken, error) {
	return fetch[runnerapi.JoinToken](ctx, n.core, newRequest("get-join-token"))
}

// List reads all nodes.
func (n Nodes) List(ctx context.Context) ([]runnerapi.Node, error) {
	return pages(ctx, n.core, newRequest("list-nodes"), func(l runnerapi.NodeList) ([]runnerapi.Node, runnerapi.Page) { return l.Items, l.Page })
}

// Get reads one node.
func (n Nodes) Get(ctx context.Context, name string) (runnerapi.Node, error) {
	return fetch[runnerapi.Node](ctx, n.core, newRequest("get-node", name))
}

// Cordon keeps new pods off a node.
func (n Nodes) Cordon(ctx context.Context, name string, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	return n.command(ctx, newRequest("cordon-node", name), opts)
}

// Uncordon makes a node schedulable again.
func (n Nodes) Uncordon(ctx context.Context, name string, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	return n.command(ctx, newRequest("uncordon-node", name), opts)
}

func (n Nodes) command(ctx context.Context, r *request, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	return fetch[runnerapi.Node](ctx, n.core, r.write(opts))
}

// Drain cordons a node and evicts its pods until none is left. It reports the progress every
// other second. If ctx ends first, it returns the progress with ctx's error. Evicted pods stay
// evicted, and another call continues. Each report belongs to its own command: with an
// Idempotency-Key their keys are KEY-1, KEY-2 and so on. A caller that repeats the call gets the
// same reports again, and then the drain continues.
func (n Nodes) Drain(ctx context.Context, name string, options runnerapi.DrainOptions, opts runnerapi.WriteOptions, report func(runnerapi.Drain)) (runnerapi.Drain, error) {
	var evicted []string
	last := runnerapi.Drain{Node: name}
	for part := 1; ; part++ {
		step := runnerapi.WriteOptions{DryRun: opts.DryRun}
		if opts.IdempotencyKey != "" {
			step.IdempotencyKey = opts.IdempotencyKey + "-" + strconv.Itoa(part)
		}
		r := newRequest("drain-node", name).send(options).write(step)
		if !opts.DryRun {
			r.query = map[string]string{"wait": progressWait.String()}
		}
		var now runnerapi.Drain
		if _, err := n.call(ctx, r, &now); err != nil {
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
