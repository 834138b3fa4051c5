package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// hostModel is the state of a public host that an agent may serve.
type hostModel struct {
	Host    types.String `tfsdk:"host"`
	Agent   types.String `tfsdk:"agent"`
	AgentID types.String `tfsdk:"agent_id"`
}

func newHost() resource.Resource {
	id := schema.StringAttribute{Computed: true, Description: "ID of the agent."}
	grant := func(ctx context.Context, c *operatorapi.Client, m, _ *hostModel) error {
		granted, err := operatorapi.CreateHostGrant.Do(ctx, c, operatorapi.CreateHostGrantInput{
			Host: m.Host.ValueString(), Body: operatorapi.CreateHostGrantBody{Agent: m.Agent.ValueString()},
		})
		m.AgentID = types.StringValue(granted.AgentID)
		return err
	}
	return &ofOperator[hostModel]{
		kind: "host", key: "host",
		fields: map[string]path.Path{"path.host": path.Root("host"), "host": path.Root("host"), "agent": path.Root("agent")},
		schema: schema.Schema{
			Description: "A public host that an agent may serve at the gateway without a proof in DNS.",
			Attributes: map[string]schema.Attribute{
				"host":     fixed(required("The host, such as `www.example.com`.")),
				"agent":    required("Name or ID of the agent."),
				"agent_id": id,
			},
		},
		create: grant, update: grant,
		read: func(ctx context.Context, c *operatorapi.Client, m *hostModel) (bool, error) {
			list, err := operatorapi.ListHostGrants.Do(ctx, c, struct{}{})
			if err != nil {
				return false, err
			}
			at := slices.IndexFunc(list.Items, func(g store.HostGrant) bool { return g.Host == m.Host.ValueString() })
			if at < 0 {
				return false, nil
			}
			if now := types.StringValue(list.Items[at].AgentID); !m.AgentID.Equal(now) { // of another agent, or imported
				m.Agent, m.AgentID = now, now
			}
			return true, nil
		},
		remove: func(ctx context.Context, c *operatorapi.Client, m *hostModel) error {
			_, err := operatorapi.DeleteHostGrant.Do(ctx, c, operatorapi.HostInput{Host: m.Host.ValueString()})
			return err
		},
	}
}
