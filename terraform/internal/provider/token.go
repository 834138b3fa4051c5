package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// tokenModel is the state of an enrolment token.
type tokenModel struct {
	ID        types.String      `tfsdk:"id"`
	Name      types.String      `tfsdk:"name"`
	Labels    map[string]string `tfsdk:"labels"`
	Uses      types.Int64       `tfsdk:"uses"`
	TTL       types.String      `tfsdk:"ttl"`
	Approve   types.Bool        `tfsdk:"approve"`
	Token     types.String      `tfsdk:"token"`
	ExpiresAt types.String      `tfsdk:"expires_at"`
}

func newToken() resource.Resource {
	return &ofOperator[tokenModel]{
		kind: "token", key: "id",
		fields: map[string]path.Path{"name": path.Root("name"), "labels": path.Root("labels"), "uses": path.Root("uses"), "ttl": path.Root("ttl")},
		schema: schema.Schema{
			Description: "An enrolment token, with which agents register. Any change replaces it. A token that has expired or is used up stays in the state, so that nothing is replaced for it. Destroying it revokes it; its agents stay.",
			Attributes: map[string]schema.Attribute{
				"id":         computed("ID of the token."),
				"name":       fixed(defaulted("Purpose of the token, shown in lists.", "")),
				"labels":     fixedMap("Labels of the agents that register with the token."),
				"uses":       fixedNumber("How many agents may register; 0 for any number."),
				"ttl":        fixedDuration("Lifetime, such as `24h`; absent for unlimited.", false),
				"approve":    fixedBool("Each registration waits for an approval."),
				"token":      secret("The token with its secret, for `AGENT_TOKEN`. An imported token has none."),
				"expires_at": computed("When it expires; absent for never."),
			},
		},
		create: createToken, read: readToken,
		// Only the form of ttl changes in place, such as 1h to 60m.
		update: func(context.Context, *operatorapi.Client, *tokenModel, *tokenModel) error { return nil },
		remove: func(ctx context.Context, c *operatorapi.Client, m *tokenModel) error {
			_, err := operatorapi.RevokeToken.Do(ctx, c, operatorapi.TokenInput{ID: m.ID.ValueString()})
			return err
		},
	}
}

func createToken(ctx context.Context, c *operatorapi.Client, m, _ *tokenModel) error {
	ttl, err := duration(m.TTL)
	if err != nil {
		return err
	}
	made, err := operatorapi.CreateToken.Do(ctx, c, operatorapi.CreateTokenInput{Body: operatorapi.CreateTokenBody{
		Name: m.Name.ValueString(), Labels: m.Labels, Uses: int(m.Uses.ValueInt64()), TTL: ttl, Approve: m.Approve.ValueBool(),
	}})
	if err != nil {
		return err
	}
	m.ID, m.Token, m.ExpiresAt = types.StringValue(made.ID), types.StringValue(made.Text), moment(made.ExpiresAt)
	return nil
}

func readToken(ctx context.Context, c *operatorapi.Client, m *tokenModel) (bool, error) {
	list, err := operatorapi.ListTokens.Do(ctx, c, struct{}{})
	if err != nil {
		return false, err
	}
	for _, t := range list.Items {
		if t.ID != m.ID.ValueString() {
			continue
		}
		m.Name, m.Uses, m.Approve, m.ExpiresAt = types.StringValue(t.Name), types.Int64Value(int64(t.MaxUses)), types.BoolValue(t.Approve), moment(t.ExpiresAt)
		if m.Labels = t.Labels; len(t.Labels) == 0 {
			m.Labels = nil
		}
		if m.TTL.IsNull() && !t.ExpiresAt.IsZero() {
			m.TTL = types.StringValue(t.ExpiresAt.Sub(t.CreatedAt).Round(time.Second).String())
		}
		return t.State != store.TokenRevoked && t.State != store.TokenRotated, nil
	}
	return false, nil
}

// moment returns a time in RFC 3339; null for none.
func moment(t time.Time) types.String {
	if t.IsZero() {
		return types.StringNull()
	}
	return types.StringValue(t.UTC().Format(time.RFC3339))
}
