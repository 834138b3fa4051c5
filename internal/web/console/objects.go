package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// kind is a kind of objects in an agent's cluster.
type kind struct {
	Name, Text string // in the path, and of the tab
	command    string // of pipeops-runner, before and after the agent
	flags      []string
}

// kinds are in the order of the tabs.
var kinds = []kind{
	{"namespaces", "Namespaces", "namespace list", nil}, {"secrets", "Secrets", "secret list", []string{"-A"}},
	{"config-maps", "ConfigMaps", "configmap list", []string{"-A"}}, {"releases", "Helm releases", "helm list", []string{"-A"}},
	{"sources", "Git sources", "source list", []string{"-A"}}, {"builds", "Builds", "build list", []string{"-A"}},
	{"manifest-sets", "Manifests", "applyset list", []string{"-A"}}, {"jobs", "Jobs", "job list", []string{"-A"}},
	{"pipelines", "Pipelines", "pipeline list", []string{"-A"}}, {"alerts", "Alerts", "alerts", nil}, {"cost", "Cost", "cost", nil},
}

// objectsData is what the page of an agent's objects of one kind shows.
type objectsData struct {
	web.Rows[[]string]
	Agent, AgentName string
	Kind             kind
	Kinds            []kind
	Columns          []string
	States           []bool // of the columns
	Find             string
	Omitted          int
	Problem          *problem.Error // why they are unknown
	Command          string
}

func (p *fleetPages) objects(w http.ResponseWriter, r *http.Request) error {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.Name == r.PathValue("kind") })
	if at < 0 {
		return web.NotFound()
	}
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	agent, query := r.PathValue("name"), r.URL.Query()
	data := objectsData{Agent: agent, AgentName: agent, Kind: kinds[at], Kinds: kinds, Find: strings.TrimSpace(query.Get("find"))}
	found, err := operatorapi.GetAgent.Do(ctx, p.opts.API, operatorapi.GetAgentInput{Agent: agent})
	if err != nil {
		return err
	}
	data.AgentName = found.Agent.Name
	if err = p.canAsk(ctx, found.Agent); err == nil {
		err = data.read(ctx, p.opts.API, query)
	}
	if data.Problem, err = shownOnPage(err); err != nil {
		return err
	}
	data.Command = web.CommandLine(runnerProgram+" "+data.Kind.command, append([]string{data.AgentName}, data.Kind.flags...)...)
	of := page(r, data.Kind.Text+" of "+data.AgentName, "/console/", "")
	of.Data = data
	p.pages.Render(w, r, http.StatusOK, "objects", of)
	return nil
}

// read asks the agent.
func (d *objectsData) read(ctx context.Context, t operatorapi.Target, query url.Values) error {
	list, err := operatorapi.ListAgentObjects.Do(ctx, t, operatorapi.AgentObjectsInput{Agent: d.Agent, Kind: d.Kind.Name})
	if err != nil {
		return err
	}
	d.Omitted = list.Omitted
	for _, column := range list.Columns {
		d.Columns = append(d.Columns, web.Sentence(strings.ToLower(column)))
		d.States = append(d.States, slices.Contains([]string{"STATE", "STATUS", "PHASE"}, column))
	}
	d.Rows = web.Paged(slices.DeleteFunc(list.Rows, func(row []string) bool {
		return !slices.ContainsFunc(row, func(cell string) bool { return strings.Contains(strings.ToLower(cell), strings.ToLower(d.Find)) })
	}), query)
	return nil
}
