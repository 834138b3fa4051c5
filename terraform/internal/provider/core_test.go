package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/require"
)

// object is a block of a configuration, or what a state has.
type object map[string]any

// unknown is a value that another resource has yet to make.
var unknown = new(struct{})

// core calls the provider as Terraform does: over its protocol.
type core struct {
	t      *testing.T
	server tfprotov6.ProviderServer
	schema *tfprotov6.GetProviderSchemaResponse
}

// instance is a resource in a state.
type instance struct {
	kind    string
	value   tftypes.Value
	private []byte
}

func newCore(t *testing.T, settings object) *core {
	t.Helper()
	server := providerserver.NewProtocol6(New("test")())()
	schema, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	require.NoError(t, err)
	c := &core{t, server, schema}
	require.Empty(t, problems(schema.Diagnostics))
	config := c.dynamic(c.value(schema.Provider.ValueType(), settings), schema.Provider.ValueType())
	checked, err := server.ValidateProviderConfig(t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: config})
	require.NoError(t, err)
	require.Empty(t, problems(checked.Diagnostics))
	done, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: config})
	require.NoError(t, err)
	require.Empty(t, problems(done.Diagnostics))
	return c
}

// problems returns diagnostics as texts, each with its attribute.
func problems(all []*tfprotov6.Diagnostic) (texts []string) {
	for _, d := range all {
		texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s: %s: %s", d.Severity, d.Attribute, d.Summary, d.Detail)))
	}
	return texts
}

func (c *core) typeOf(kind string) tftypes.Type { return c.schema.ResourceSchemas[kind].ValueType() }

func (c *core) dynamic(v tftypes.Value, of tftypes.Type) *tfprotov6.DynamicValue {
	c.t.Helper()
	d, err := tfprotov6.NewDynamicValue(of, v)
	require.NoError(c.t, err)
	return &d
}

// value makes a value of the protocol.
func (c *core) value(of tftypes.Type, v any) tftypes.Value {
	c.t.Helper()
	if v == nil {
		return tftypes.NewValue(of, nil)
	}
	if v == unknown {
		return tftypes.NewValue(of, tftypes.UnknownValue)
	}
	switch of := of.(type) {
	case tftypes.Object:
		given, ok := v.(object)
		require.True(c.t, ok, "%v is no block", v)
		values := map[string]tftypes.Value{}
		for name, t := range of.AttributeTypes {
			values[name] = c.value(t, given[name])
		}
		for name := range given {
			require.Contains(c.t, of.AttributeTypes, name)
		}
		return tftypes.NewValue(of, values)
	case tftypes.Map:
		values := map[string]tftypes.Value{}
		for name, value := range v.(object) {
			values[name] = c.value(of.ElementType, value)
		}
		return tftypes.NewValue(of, values)
	case tftypes.Set:
		var values []tftypes.Value
		for _, value := range v.([]string) {
			values = append(values, c.value(of.ElementType, value))
		}
		return tftypes.NewValue(of, values)
	}
	return tftypes.NewValue(of, v)
}

// fields returns the attributes of an object.
func fields(t *testing.T, v tftypes.Value) (values map[string]tftypes.Value) {
	t.Helper()
	require.NoError(t, v.As(&values))
	return values
}

// proposed is Terraform's: the configuration, and where that leaves out a computed attribute, what
// the state has.
func (c *core) proposed(attributes []*tfprotov6.SchemaAttribute, of tftypes.Type, config, prior tftypes.Value) tftypes.Value {
	c.t.Helper()
	values, before := fields(c.t, config), map[string]tftypes.Value{}
	if !prior.IsNull() {
		before = fields(c.t, prior)
	}
	for _, a := range attributes {
		was, had := before[a.Name]
		switch {
		case a.WriteOnly:
			values[a.Name] = tftypes.NewValue(values[a.Name].Type(), nil)
		case a.Computed && values[a.Name].IsNull() && had:
			values[a.Name] = was
		case a.NestedType != nil && values[a.Name].IsKnown() && !values[a.Name].IsNull():
			if !had {
				was = tftypes.NewValue(values[a.Name].Type(), nil)
			}
			values[a.Name] = c.proposed(a.NestedType.Attributes, values[a.Name].Type(), values[a.Name], was)
		}
	}
	return tftypes.NewValue(of, values)
}

// planned is a plan of one resource.
type planned struct {
	*tfprotov6.PlanResourceChangeResponse
	kind   string
	prior  tftypes.Value
	config tftypes.Value
	value  tftypes.Value
}

// replaces reports whether the plan replaces the resource.
func (p *planned) replaces() bool { return len(p.RequiresReplace) > 0 }

// changes reports whether the plan changes anything.
func (p *planned) changes() bool { return !p.value.Equal(p.prior) }

// plan validates a configuration and plans it. in is nil for a new resource.
func (c *core) plan(kind string, in *instance, config object) (*planned, []string) {
	c.t.Helper()
	of := c.typeOf(kind)
	p := &planned{kind: kind, config: c.value(of, config), prior: tftypes.NewValue(of, nil)}
	req := &tfprotov6.PlanResourceChangeRequest{TypeName: kind, Config: c.dynamic(p.config, of)}
	if in != nil {
		p.prior, req.PriorPrivate = in.value, in.private
	}
	checked, err := c.server.ValidateResourceConfig(c.t.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: kind, Config: req.Config, ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
	})
	require.NoError(c.t, err)
	if wrong := problems(checked.Diagnostics); len(wrong) > 0 {
		return nil, wrong
	}
	req.PriorState = c.dynamic(p.prior, of)
	req.ProposedNewState = c.dynamic(c.proposed(c.schema.ResourceSchemas[kind].Block.Attributes, of, p.config, p.prior), of)
	p.PlanResourceChangeResponse, err = c.server.PlanResourceChange(c.t.Context(), req)
	require.NoError(c.t, err)
	p.value, err = p.PlannedState.Unmarshal(of)
	require.NoError(c.t, err)
	return p, problems(p.Diagnostics)
}

// apply carries out a plan. Terraform replaces a resource by two of them.
func (c *core) apply(p *planned) (*instance, []string) {
	c.t.Helper()
	require.False(c.t, p.replaces())
	of := c.typeOf(p.kind)
	done, err := c.server.ApplyResourceChange(c.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: p.kind, PriorState: c.dynamic(p.prior, of), PlannedState: p.PlannedState, Config: c.dynamic(p.config, of), PlannedPrivate: p.PlannedPrivate,
	})
	require.NoError(c.t, err)
	value, err := done.NewState.Unmarshal(of)
	require.NoError(c.t, err)
	return &instance{p.kind, value, done.Private}, problems(done.Diagnostics)
}

// put plans and applies a configuration, which has to succeed.
func (c *core) put(kind string, in *instance, config object) *instance {
	c.t.Helper()
	p, wrong := c.plan(kind, in, config)
	require.Empty(c.t, wrong)
	now, wrong := c.apply(p)
	require.Empty(c.t, wrong)
	c.consistent(p, now)
	again, wrong := c.plan(kind, c.refresh(now), config)
	require.Empty(c.t, wrong)
	require.False(c.t, again.changes(), "the same configuration again changes nothing:\n%s\n%s", again.prior, again.value)
	return now
}

// consistent is what Terraform demands: what was planned is there.
func (c *core) consistent(p *planned, now *instance) {
	c.t.Helper()
	is := fields(c.t, now.value)
	for name, wanted := range fields(c.t, p.value) {
		if wanted.IsFullyKnown() {
			require.True(c.t, wanted.Equal(is[name]), "%s: planned %s, got %s", name, wanted, is[name])
		}
		require.True(c.t, is[name].IsFullyKnown(), name)
	}
}

// refresh reads a resource; nil if it does not exist any more.
func (c *core) refresh(in *instance) *instance {
	c.t.Helper()
	now, wrong := c.tryRefresh(in)
	require.Empty(c.t, wrong)
	return now
}

func (c *core) tryRefresh(in *instance) (*instance, []string) {
	c.t.Helper()
	of := c.typeOf(in.kind)
	read, err := c.server.ReadResource(c.t.Context(), &tfprotov6.ReadResourceRequest{TypeName: in.kind, CurrentState: c.dynamic(in.value, of), Private: in.private})
	require.NoError(c.t, err)
	if wrong := problems(read.Diagnostics); len(wrong) > 0 {
		return nil, wrong
	}
	value, err := read.NewState.Unmarshal(of)
	require.NoError(c.t, err)
	if value.IsNull() {
		return nil, nil
	}
	return &instance{in.kind, value, read.Private}, nil
}

// destroy plans and applies the end of a resource.
func (c *core) destroy(in *instance) []string {
	c.t.Helper()
	of := c.typeOf(in.kind)
	none := c.dynamic(tftypes.NewValue(of, nil), of)
	p, err := c.server.PlanResourceChange(c.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: in.kind, PriorState: c.dynamic(in.value, of), ProposedNewState: none, Config: none, PriorPrivate: in.private,
	})
	require.NoError(c.t, err)
	require.Empty(c.t, problems(p.Diagnostics))
	done, err := c.server.ApplyResourceChange(c.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: in.kind, PriorState: c.dynamic(in.value, of), PlannedState: p.PlannedState, Config: none, PlannedPrivate: p.PlannedPrivate,
	})
	require.NoError(c.t, err)
	return problems(done.Diagnostics)
}

// imported imports and reads a resource.
func (c *core) imported(kind, id string) *instance {
	c.t.Helper()
	found, err := c.server.ImportResourceState(c.t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: kind, ID: id})
	require.NoError(c.t, err)
	require.Empty(c.t, problems(found.Diagnostics))
	require.Len(c.t, found.ImportedResources, 1)
	value, err := found.ImportedResources[0].State.Unmarshal(c.typeOf(kind))
	require.NoError(c.t, err)
	return c.refresh(&instance{kind, value, found.ImportedResources[0].Private})
}

// data reads a data source.
func (c *core) data(kind string, config object) (tftypes.Value, []string) {
	c.t.Helper()
	of := c.schema.DataSourceSchemas[kind].ValueType()
	read, err := c.server.ReadDataSource(c.t.Context(), &tfprotov6.ReadDataSourceRequest{TypeName: kind, Config: c.dynamic(c.value(of, config), of)})
	require.NoError(c.t, err)
	if wrong := problems(read.Diagnostics); len(wrong) > 0 {
		return tftypes.Value{}, wrong
	}
	value, err := read.State.Unmarshal(of)
	require.NoError(c.t, err)
	return value, nil
}

// text returns a text in an object; empty for null.
func text(t *testing.T, v tftypes.Value, name string) (text string) {
	t.Helper()
	is := fields(t, v)[name]
	if !is.IsNull() {
		require.NoError(t, is.As(&text))
	}
	return text
}

// elements returns the elements of a list.
func elements(t *testing.T, v tftypes.Value) (values []tftypes.Value) {
	t.Helper()
	require.NoError(t, v.As(&values))
	return values
}
