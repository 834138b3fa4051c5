package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

type (
	nodeOutput      struct{ Body runnerapi.Node }
	nodeListOutput  struct{ Body runnerapi.NodeList }
	eventListOutput struct{ Body runnerapi.EventList }
	drainOutput     struct {
		Status int
		Body   runnerapi.Drain
	}
)

// nodeCalls are the calls about nodes and events.
type nodeCalls struct {
	*calls
	nodes  backend.Nodes
	events backend.Events
}

func (s *nodeCalls) routes() {
	register(s.calls, operation("list-nodes", "Cluster", "List the nodes",
		"All nodes, with capacity, use and conditions.", 0), s.listNodes)
	register(s.calls, operation("get-node", "Cluster", "Get a node",
		"Its capacity, use, conditions, taints and addresses.", 0), s.getNode)
	register(s.calls, operation("list-events", "Cluster", "List the events of a namespace",
		"Kubernetes' events about the objects in a managed namespace, newest first. It forgets events, usually after an hour.", 0), s.listEvents)
	register(s.calls, operation("cordon-node", "Cluster", "Keep new pods off a node",
		"Pods that are there stay. The customer's policy has to name this command, and the agent needs rights that are not among its own: see docs/deployer/nodes.md.", 0), s.cordon(true))
	register(s.calls, operation("uncordon-node", "Cluster", "Let new pods come to a node",
		"Takes back what cordon or drain did. The customer's policy has to name this command.", 0), s.cordon(false))
	registerLong(s.calls, mayGoOn(operation("drain-node", "Cluster", "Drain a node",
		"Cordons the node and has its pods evicted, as their disruption budgets allow; pods of DaemonSets and static pods stay. "+
			"With wait, refused evictions are tried again for so long. Answers 200 when the node is empty and 202 when pods remain: "+
			"the body says which and why, and calling again continues. A pod whose eviction fails keeps none of the others. The customer's policy has to name this command.", request.MaxSmallBody)), s.drainNode)
}

func (s *nodeCalls) listNodes(ctx context.Context, in *struct{ params.Page }) (*nodeListOutput, error) {
	items, err := s.nodes.List(ctx)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Node) string { return keyOf(o.Name) })
	return &nodeListOutput{Body: runnerapi.NodeList{Items: items, Page: rest}}, err
}

func (s *nodeCalls) getNode(ctx context.Context, in *params.Node) (*nodeOutput, error) {
	node, err := s.nodes.Get(ctx, in.Name)
	return &nodeOutput{Body: node}, err
}

type cordonInput struct {
	params.Node
	params.Write
}

func (s *nodeCalls) cordon(cordoned bool) func(context.Context, *cordonInput) (*nodeOutput, error) {
	return func(ctx context.Context, in *cordonInput) (*nodeOutput, error) {
		node, err := s.nodes.Cordon(ctx, in.Name, cordoned, s.writeOptions(ctx, in.Write))
		return &nodeOutput{Body: node}, err
	}
}

func (s *nodeCalls) drainNode(ctx context.Context, in *struct {
	params.Node
	params.Write
	params.Wait
	Body runnerapi.DrainOptions
}) (*drainOutput, error) {
	wait, err := in.Duration()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait+s.timeout)
	defer cancel()
	drain, err := s.drain(ctx, in.Name, in.Body, s.writeOptions(ctx, in.Write), time.Now().Add(wait))
	if err != nil {
		return nil, err
	}
	drain.Evicted = guard.Seen(ctx, s.guard, drain.Evicted, namespaceOf)
	drain.Remaining = guard.Seen(ctx, s.guard, drain.Remaining, func(p runnerapi.DrainingPod) string { return p.Namespace })
	out := &drainOutput{Status: http.StatusOK, Body: drain}
	if !drain.Done {
		out.Status = http.StatusAccepted
	}
	return out, nil
}

// namespaceOf returns the namespace in NAMESPACE/NAME.
func namespaceOf(pod string) string {
	namespace, _, _ := strings.Cut(pod, "/")
	return namespace
}

// drainPause is between two tries at the pods that remain.
const drainPause = time.Second

// drain makes passes until the node is empty or it is end.
func (s *nodeCalls) drain(ctx context.Context, name string, options runnerapi.DrainOptions, opts runnerapi.WriteOptions, end time.Time) (runnerapi.Drain, error) {
	var evicted []string
	for {
		drain, err := s.nodes.Drain(ctx, name, options, opts)
		evicted = append(evicted, drain.Evicted...)
		if err != nil {
			return runnerapi.Drain{}, brokeOff(err, guard.Seen(ctx, s.guard, evicted, namespaceOf))
		}
		drain.Evicted = evicted
		if drain.Done || opts.DryRun || time.Until(end) < drainPause {
			return drain, nil
		}
		if !retry.Wait(ctx, drainPause) {
			return runnerapi.Drain{}, ctx.Err()
		}
	}
}

// brokeOff adds to an error what a drain had done by then.
func brokeOff(err error, evicted []string) error {
	p := &problem.Error{}
	if len(evicted) == 0 || !errors.As(err, &p) {
		return err
	}
	said := *p
	said.Detail += fmt.Sprintf("; these pods had been evicted before: %s", strings.Join(evicted[:min(len(evicted), maxEvictedNamed)], ", "))
	if more := len(evicted) - maxEvictedNamed; more > 0 {
		said.Detail += fmt.Sprintf(" and %d more", more)
	}
	return &said
}

const maxEvictedNamed = 10

func (s *nodeCalls) listEvents(ctx context.Context, in *struct {
	params.Namespace
	params.EventFilter
}) (*eventListOutput, error) {
	filter := runnerapi.EventFilter{Kind: in.Kind, Name: in.Name, Type: in.Type, Limit: in.Limit}
	if in.Since != "" {
		d, err := time.ParseDuration(in.Since)
		if err != nil || d <= 0 {
			return nil, problem.Errorf(problem.Invalid, "give a duration such as 10m", "since is not a positive duration").WithField("query.since")
		}
		filter.Since = d
	}
	items, err := s.events.List(ctx, in.Namespace.Namespace, filter)
	return &eventListOutput{Body: runnerapi.EventList{Items: notNil(items)}}, err
}
