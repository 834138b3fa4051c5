package operatorapi

import (
	"context"
	"io"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// maxRows bounds the rows of a list of objects.
const maxRows = 2000

// ListAgentObjects lists what an agent's cluster has of one kind, in the namespaces that the agent
// manages.
var ListAgentObjects = Call[AgentObjectsInput, AgentObjects]{
	Description{Method: "GET", Path: Prefix + "agents/{agent}/objects/{kind}", ID: "list-agent-objects", Role: administration.RoleViewer, Command: "pipeops-runner KIND list",
		Summary: "List the objects of a kind in an agent's cluster, as a Runner"},
	func(ctx context.Context, a *administration.Admin, in *AgentObjectsInput) (AgentObjects, error) {
		return onAgent(ctx, a, AppKey{Agent: in.Agent}, func(c *client.Client) (out AgentObjects, err error) {
			found, err := a.Agents.Get(ctx, in.Agent, 0)
			if err != nil {
				return out, err
			}
			out.AgentName = found.Agent.Name
			out.Table, err = kinds[in.Kind](ctx, c)
			out.Omitted = max(0, len(out.Rows)-maxRows)
			out.Rows = out.Rows[:min(len(out.Rows), maxRows)]
			return out, err
		})
	},
}

// AgentObjectsInput names an agent and a kind.
type AgentObjectsInput struct {
	Agent string `path:"agent" maxLength:"63"`
	Kind  string `path:"kind" enum:"namespaces,secrets,config-maps,releases,sources,builds,manifest-sets,jobs,pipelines,alerts,cost"`
}

// AgentObjects is a table of objects.
type AgentObjects struct {
	tables.Table
	AgentName string `json:"agentName"`
	Omitted   int    `json:"omitted,omitempty" doc:"How many more rows there are."`
}

// kinds list the objects of each kind.
var kinds = map[string]func(context.Context, *client.Client) (tables.Table, error){
	"namespaces": func(ctx context.Context, c *client.Client) (tables.Table, error) {
		return table(tables.Namespaces)(c.Namespaces().List(ctx))
	},
	"secrets":       inEach((*client.Client).Secrets, tables.Secrets),
	"config-maps":   inEach((*client.Client).ConfigMaps, tables.ConfigMaps),
	"releases":      inEach((*client.Client).Releases, tables.Releases),
	"sources":       inEach((*client.Client).Sources, tables.Sources),
	"builds":        inEach((*client.Client).Builds, tables.Builds),
	"manifest-sets": inEach((*client.Client).Manifests, tables.ManifestSets),
	"jobs":          inEach((*client.Client).Jobs, tables.Jobs),
	"pipelines":     inEach((*client.Client).Pipelines, tables.Pipelines),
	"alerts": func(ctx context.Context, c *client.Client) (tables.Table, error) {
		list, err := c.Monitoring().Alerts(ctx, "")
		return table(func(w io.Writer, items ...runnerapi.Alert) { tables.Alerts(w, items) })(list.Items, err)
	},
	"cost": func(ctx context.Context, c *client.Client) (tables.Table, error) {
		list, err := c.Monitoring().Cost(ctx, runnerapi.CostOptions{})
		return table(func(w io.Writer, items ...runnerapi.Cost) { tables.Costs(w, items, false) })(list.Items, err)
	},
}

// table returns the table of what a list returned.
func table[T any](write func(io.Writer, ...T)) func([]T, error) (tables.Table, error) {
	return func(items []T, err error) (tables.Table, error) {
		return tables.Read(func(w io.Writer) { write(w, items...) }), err
	}
}

// lister lists the objects of a namespace.
type lister[T any] interface {
	List(ctx context.Context, namespace string) ([]T, error)
}

// inEach lists the objects in each namespace that the agent manages.
func inEach[L lister[T], T any](of func(*client.Client) L, write func(io.Writer, ...T)) func(context.Context, *client.Client) (tables.Table, error) {
	return func(ctx context.Context, c *client.Client) (tables.Table, error) {
		all := tables.Table{}
		namespaces, err := c.Namespaces().List(ctx)
		if err != nil {
			return all, err
		}
		all.Add("", tables.Read(func(w io.Writer) { write(w) }))
		for _, n := range namespaces {
			some, err := table(write)(of(c).List(ctx, n.Name))
			if err != nil {
				return all, err
			}
			if all.Add(n.Name, some); len(all.Rows) > maxRows {
				break
			}
		}
		return all, nil
	}
}
