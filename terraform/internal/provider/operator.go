package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// ofOperator is a resource of the operator API. M is its state.
type ofOperator[M any] struct {
	*clients
	kind   string // as in pipeops_KIND
	schema schema.Schema
	key    string // the attribute by which it is imported
	fields map[string]path.Path

	// create and update fill the plan with what the control plane reports. The configuration has
	// the write-only attributes.
	create func(ctx context.Context, c *operatorapi.Client, plan, config *M) error
	update func(ctx context.Context, c *operatorapi.Client, plan, config *M) error
	// read fills the state, and reports whether the object exists.
	read   func(ctx context.Context, c *operatorapi.Client, state *M) (bool, error)
	remove func(ctx context.Context, c *operatorapi.Client, state *M) error
}

func (r *ofOperator[M]) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "pipeops_" + r.kind
}

func (r *ofOperator[M]) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.schema
}

func (r *ofOperator[M]) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.clients = configured(req.ProviderData, &resp.Diagnostics)
}

// with calls do with the operator's client, for as long as a call may take.
func (r *ofOperator[M]) with(ctx context.Context, do func(context.Context, *operatorapi.Client) error) error {
	c, err := r.operator()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return do(ctx, c)
}

func (r *ofOperator[M]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan, config M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if err := r.with(ctx, func(ctx context.Context, c *operatorapi.Client) error { return r.create(ctx, c, &plan, &config) }); err != nil {
		failed(&resp.Diagnostics, "Cannot create the "+r.kind, err, r.fields)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *ofOperator[M]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state M
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	found := false
	err := r.with(ctx, func(ctx context.Context, c *operatorapi.Client) (err error) {
		found, err = r.read(ctx, c, &state)
		return err
	})
	switch {
	case err != nil:
		failed(&resp.Diagnostics, "Cannot read the "+r.kind, err, nil)
	case !found:
		resp.State.RemoveResource(ctx)
	default:
		resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
	}
}

func (r *ofOperator[M]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, config M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if err := r.with(ctx, func(ctx context.Context, c *operatorapi.Client) error { return r.update(ctx, c, &plan, &config) }); err != nil {
		failed(&resp.Diagnostics, "Cannot change the "+r.kind, err, r.fields)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *ofOperator[M]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state M
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	err := r.with(ctx, func(ctx context.Context, c *operatorapi.Client) error { return r.remove(ctx, c, &state) })
	if err != nil && !isGone(err) {
		failed(&resp.Diagnostics, "Cannot delete the "+r.kind, err, nil)
	}
}

func (r *ofOperator[M]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root(r.key), req, resp)
}
