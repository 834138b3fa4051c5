package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// texts returns a list that is not null.
func texts(of []string) types.List {
	values := make([]attr.Value, len(of))
	for i, text := range of {
		values[i] = types.StringValue(text)
	}
	return types.ListValueMust(types.StringType, values)
}

// specText returns a spec as people write it.
func specText(spec runnerapi.AppSpec) (string, error) {
	text, err := appfile.WriteSpec(spec)
	return string(text), err
}

// agentsData lists agents.
type agentsData struct{ *clients }

type agentsModel struct {
	Selector types.String `tfsdk:"selector"`
	Agents   []agentModel `tfsdk:"agents"`
}

type agentModel struct {
	ID         types.String      `tfsdk:"id"`
	Name       types.String      `tfsdk:"name"`
	State      types.String      `tfsdk:"state"`
	Labels     map[string]string `tfsdk:"labels"`
	Version    types.String      `tfsdk:"version"`
	Kubernetes types.String      `tfsdk:"kubernetes_version"`
}

func newAgents() datasource.DataSource { return &agentsData{} }

func (a *agentsData) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = "pipeops_agents"
}

func (a *agentsData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "The agents that the Runner may see.",
		Attributes: map[string]schema.Attribute{
			"selector": schema.StringAttribute{Optional: true, Description: "Label selector, such as `env=prod`; all if absent."},
			"agents": schema.ListNestedAttribute{Computed: true, Description: "The agents, by name.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"id":                 shown("ID, which never changes."),
				"name":               shown("Name of the cluster."),
				"state":              shown("`pending`, `online`, `offline` or `revoked`."),
				"labels":             schema.MapAttribute{Computed: true, ElementType: types.StringType, Description: "Labels."},
				"version":            shown("Version of the agent."),
				"kubernetes_version": shown("Version of Kubernetes."),
			}}},
		},
	}
}

func shown(doc string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, Description: doc}
}

func (a *agentsData) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	a.clients = configured(req.ProviderData, &resp.Diagnostics)
}

func (a *agentsData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m agentsModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	wanted, err := credentials.ParseGrant(m.Selector.ValueString())
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("selector"), "Not a label selector", err.Error())
	}
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, control, err := a.agents(ctx)
	if err != nil {
		failed(&resp.Diagnostics, "Cannot list agents", err, nil)
		return
	}
	list, err := control.Agents(ctx)
	if err != nil {
		failed(&resp.Diagnostics, "Cannot list agents", err, nil)
		return
	}
	m.Agents = []agentModel{}
	for _, found := range list {
		if wanted.Allows(found.Labels) {
			m.Agents = append(m.Agents, agentModel{
				types.StringValue(found.ID), types.StringValue(found.Name), types.StringValue(string(found.State)), found.Labels,
				types.StringValue(found.AgentVersion), types.StringValue(found.KubernetesVersion),
			})
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// appData reads an App that others manage.
type appData struct{ *clients }

type appDataModel struct {
	Agent      types.String `tfsdk:"agent"`
	Namespace  types.String `tfsdk:"namespace"`
	Name       types.String `tfsdk:"name"`
	Image      types.String `tfsdk:"image"`
	Spec       types.String `tfsdk:"spec"`
	State      types.String `tfsdk:"state"`
	Generation types.Int64  `tfsdk:"generation"`
	URLs       types.List   `tfsdk:"urls"`
	PublicURLs types.List   `tfsdk:"public_urls"`
}

func newAppData() datasource.DataSource { return &appData{} }

func (a *appData) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = "pipeops_app"
}

func (a *appData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "An App that others manage.",
		Attributes: map[string]schema.Attribute{
			"agent":       schema.StringAttribute{Optional: true, Description: "Name or ID of the agent; that of the provider if absent."},
			"namespace":   schema.StringAttribute{Optional: true, Description: "Namespace of the App; `" + defaultNamespace + "` if absent."},
			"name":        schema.StringAttribute{Required: true, Description: "Name of the App."},
			"image":       shown("Image."),
			"spec":        shown("The spec, in YAML."),
			"state":       shown("`Progressing`, `Healthy`, `Degraded`, `Failed`, `Paused`, `Deleting` or `Stopped`."),
			"generation":  schema.Int64Attribute{Computed: true, Description: "Counts changes of the App."},
			"urls":        schema.ListAttribute{Computed: true, ElementType: types.StringType, Description: "Where the App answers inside the cluster."},
			"public_urls": schema.ListAttribute{Computed: true, ElementType: types.StringType, Description: "Where the App is reached from outside."},
		},
	}
}

func (a *appData) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	a.clients = configured(req.ProviderData, &resp.Diagnostics)
}

func (a *appData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m appDataModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if err := a.read(ctx, &m, &resp.Diagnostics); err != nil {
		failed(&resp.Diagnostics, "Cannot read the App", err, nil)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (a *appData) read(ctx context.Context, m *appDataModel, _ *diag.Diagnostics) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key := runnerapi.Key{Namespace: defaultNamespace, Name: m.Name.ValueString()}
	if !m.Namespace.IsNull() {
		key.Namespace = m.Namespace.ValueString()
	}
	agent := a.agent
	if !m.Agent.IsNull() {
		agent = m.Agent.ValueString()
	}
	return a.on(ctx, agent, func(ctx context.Context, c *client.Client) error {
		now, err := c.Apps().Get(ctx, key)
		if err != nil {
			return err
		}
		text, err := specText(now.Spec)
		m.Image, m.Spec, m.State = types.StringValue(now.Spec.Image), types.StringValue(text), types.StringValue(now.State())
		m.Generation, m.URLs, m.PublicURLs = types.Int64Value(now.Generation), texts(now.Status.URLs), texts(now.Status.PublicURLs)
		return err
	})
}
