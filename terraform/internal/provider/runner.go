package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// runnerModel is the state of a Runner.
type runnerModel struct {
	Name          types.String  `tfsdk:"name"`
	Agents        types.String  `tfsdk:"agents"`
	TTL           types.String  `tfsdk:"ttl"`
	BrokerURL     types.String  `tfsdk:"broker_url"`
	OpenID        *bindingModel `tfsdk:"openid"`
	Credentials   types.String  `tfsdk:"credentials"`
	ControlPlane  types.String  `tfsdk:"control_plane_url"`
	CAFingerprint types.String  `tfsdk:"ca_fingerprint"`
}

// bindingModel is whose ID tokens a Runner exchanges.
type bindingModel struct {
	Issuer   types.String      `tfsdk:"issuer"`
	Audience types.String      `tfsdk:"audience"`
	Claims   map[string]string `tfsdk:"claims"`
}

func newRunner() resource.Resource {
	return &ofOperator[runnerModel]{
		kind: "runner", key: "name",
		fields: map[string]path.Path{
			"name": path.Root("name"), "agents": path.Root("agents"), "ttl": path.Root("ttl"), "brokerUrl": path.Root("broker_url"),
			"openid": path.Root("openid"), "openid.issuer": path.Root("openid").AtName("issuer"), "openid.claims": path.Root("openid").AtName("claims"), "openid.audience": path.Root("openid").AtName("audience"),
		},
		schema: schema.Schema{
			Description: "A Runner, which may see and reach agents. With `openid` it has no credentials: its jobs exchange their ID tokens. Otherwise it has credentials, which the state holds. Destroying it revokes it.",
			Attributes: map[string]schema.Attribute{
				"name":       fixed(required("Name of the Runner.")),
				"agents":     defaulted("The Runner's grant: label selector of the agents that it may see and reach; all if empty. A change issues new credentials.", ""),
				"ttl":        fixedDuration("Lifetime of each certificate, which the Runner renews; `24h` if absent. Not with `openid`.", true),
				"broker_url": schema.StringAttribute{Optional: true, Sensitive: true, WriteOnly: true, Description: "RabbitMQ URL of the Runner's own account, a secret. It is not in the state: a change of it alone changes nothing. Not with `openid`."},
				"openid": schema.SingleNestedAttribute{
					Optional: true, Description: "Whose ID tokens the Runner exchanges for certificates of 15 minutes.",
					PlanModifiers: []planmodifier.Object{objectplanmodifier.RequiresReplace()},
					Attributes: map[string]schema.Attribute{
						"issuer":   required("URL of the issuer, such as `https://token.actions.githubusercontent.com`."),
						"audience": computedOr("What ID tokens must have in `aud`; the control plane's URL if absent."),
						"claims":   schema.MapAttribute{Required: true, ElementType: types.StringType, Description: "What ID tokens must have in other claims, such as `{ repository = \"shop/web\" }`."},
					},
				},
				"credentials": schema.StringAttribute{Computed: true, Sensitive: true, Description: "Content of the Runner's file of credentials, for `pipeops-runner login` and for `runner_credentials` of the provider. Absent with `openid` and after an import."},
				// Both are variables of a CI job.
				"control_plane_url": computed("The control plane's URL, for `PIPEOPS_CONTROL_PLANE_URL`."),
				"ca_fingerprint":    computed("Fingerprint of the control plane's CA, for `PIPEOPS_CA_FINGERPRINT`. Absent after an import."),
			},
		},
		create: createRunner, update: grantRunner, read: readRunner,
		remove: func(ctx context.Context, c *operatorapi.Client, m *runnerModel) error {
			_, err := operatorapi.RevokeRunner.Do(ctx, c, operatorapi.RunnerInput{Runner: m.Name.ValueString()})
			return err
		},
	}
}

// computedOr is optional, and what the server chooses if it is absent.
func computedOr(doc string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Computed: true, Description: doc, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}}
}

// find returns a Runner that is not revoked, and whether an earlier one of its name is.
func (m *runnerModel) find(ctx context.Context, c *operatorapi.Client) (found *operatorapi.Runner, revoked bool, err error) {
	list, err := operatorapi.ListRunners.Do(ctx, c, struct{}{})
	if err != nil {
		return nil, false, err
	}
	at := slices.IndexFunc(list.Items, func(r operatorapi.Runner) bool { return r.Name == m.Name.ValueString() })
	switch {
	case at < 0:
		return nil, false, nil
	case !list.Items[at].RevokedAt.IsZero():
		return nil, true, nil
	}
	return &list.Items[at], false, nil
}

func createRunner(ctx context.Context, c *operatorapi.Client, m, config *runnerModel) error {
	ttl, err := duration(m.TTL)
	if err != nil {
		return err
	}
	known, revoked, err := m.find(ctx, c)
	if err != nil {
		return err
	}
	if known != nil { // its credentials would end
		name := m.Name.ValueString()
		return problem.Errorf(problem.Conflict, "import it: terraform import ADDRESS "+name, "there is a Runner %s already", name).WithField("name")
	}
	body := operatorapi.CreateRunnerBody{
		Name: m.Name.ValueString(), Agents: m.Agents.ValueString(), TTL: ttl, BrokerURL: config.BrokerURL.ValueString(), Replace: revoked,
	}
	if b := m.OpenID; b != nil {
		body.OpenID = &operatorapi.BindingBody{Issuer: b.Issuer.ValueString(), Audience: b.Audience.ValueString(), Claims: b.Claims}
	}
	made, err := operatorapi.CreateRunner.Do(ctx, c, operatorapi.CreateRunnerInput{Body: body})
	if err != nil {
		return err
	}
	return m.made(ctx, c, &made)
}

func grantRunner(ctx context.Context, c *operatorapi.Client, m, config *runnerModel) error {
	made, err := operatorapi.GrantRunner.Do(ctx, c, operatorapi.GrantRunnerInput{Runner: m.Name.ValueString(), Body: operatorapi.GrantRunnerBody{
		Agents: m.Agents.ValueString(), BrokerURL: config.BrokerURL.ValueString(),
	}})
	if err != nil {
		return err
	}
	return m.made(ctx, c, &made)
}

// made takes what a new grant has brought.
func (m *runnerModel) made(ctx context.Context, c *operatorapi.Client, made *operatorapi.MadeRunner) error {
	m.Credentials = types.StringNull()
	if made.OpenID == nil {
		text, err := made.Encode()
		if err != nil {
			return err
		}
		m.Credentials = types.StringValue(string(text))
	}
	m.ControlPlane, m.CAFingerprint = types.StringValue(made.ControlPlane), types.StringNull()
	if cas := trustanchor.Parse([]byte(made.CA)); len(cas) > 0 {
		m.CAFingerprint = types.StringValue(trustanchor.Fingerprint(cas[0]))
	}
	_, err := readRunner(ctx, c, m)
	return err
}

func readRunner(ctx context.Context, c *operatorapi.Client, m *runnerModel) (bool, error) {
	r, _, err := m.find(ctx, c)
	if err != nil || r == nil {
		return false, err
	}
	m.Agents = types.StringValue(r.Agents)
	if now, err := duration(m.TTL); err != nil || now != r.TTL || m.TTL.IsUnknown() {
		text, err := r.TTL.MarshalText()
		if err != nil {
			return false, err
		}
		m.TTL = types.StringValue(string(text))
	}
	if m.OpenID = nil; r.OpenID != nil {
		m.OpenID = &bindingModel{types.StringValue(r.OpenID.Issuer), types.StringValue(r.OpenID.Audience), r.OpenID.Claims}
	}
	return true, nil
}
