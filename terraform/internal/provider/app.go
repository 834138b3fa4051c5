package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// defaultTimeout is how long a rollout or a deletion may take.
const defaultTimeout = 10 * time.Minute

// gonePause is between looks at an App that is being deleted.
const gonePause = time.Second

type appTimeouts = timeouts.Value

// app is the resource of an App.
type app struct{ *clients }

func newApp() resource.Resource { return &app{} }

func (a *app) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "pipeops_app"
}

func (a *app) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	agent := fixed(computedOr("Name or ID of the agent; that of the provider if absent."))
	resp.Schema = schema.Schema{
		Description: "An App in an agent's cluster. The plan asks the agent for a dry run, and shows what it would refuse. A change that another party made since the last refresh is not overwritten. Replicas, autoscaling and pause stay as they are where the resource does not name them.",
		Attributes: map[string]schema.Attribute{
			"id":            computed("`AGENT/NAMESPACE/NAME`."),
			"agent":         agent,
			"namespace":     fixed(defaulted("Namespace of the App; `"+defaultNamespace+"` if absent.", defaultNamespace)),
			"name":          fixed(required("Name of the App.")),
			"spec":          required("The App's spec, or the file of an App: YAML, or JSON as of `jsonencode`."),
			"image":         schema.StringAttribute{Optional: true, Description: "Image, in place of that in the spec."},
			"replicas":      schema.Int32Attribute{Optional: true, Description: "Number of pods, in place of that in the spec."},
			"wait":          schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(true), Description: "Wait until the rollout has an outcome, and fail with its cause."},
			"generation":    schema.Int64Attribute{Computed: true, Description: "Counts changes of the App."},
			"deployed_spec": schema.StringAttribute{Computed: true, Description: "The spec that the App has, in JSON."},
			"urls":          schema.ListAttribute{Computed: true, ElementType: types.StringType, Description: "Where the App answers inside the cluster."},
			"public_urls":   schema.ListAttribute{Computed: true, ElementType: types.StringType, Description: "Where the App is reached from outside."},
			"timeouts": timeouts.Attributes(ctx, timeouts.Opts{
				Create: true, CreateDescription: "How long the first rollout may take, such as `5m`; `10m` if absent.",
				Update: true, UpdateDescription: "How long a later rollout may take.",
				Delete: true, DeleteDescription: "How long the App's objects may take to be gone.",
			}),
		},
	}
}

// defaultNamespace is that of pipeops-runner.
const defaultNamespace = "production"

func (a *app) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	a.clients = configured(req.ProviderData, &resp.Diagnostics)
}

func (a *app) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m appModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || m.Spec.IsUnknown() || m.Image.IsUnknown() || m.Replicas.IsUnknown() || m.Name.IsUnknown() || m.Namespace.IsUnknown() {
		return
	}
	if m.Namespace.IsNull() {
		m.Namespace = types.StringValue(defaultNamespace)
	}
	m.desired(&resp.Diagnostics)
}

// ModifyPlan asks the agent for a dry run of what the plan would do.
func (a *app) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() || a.clients == nil {
		return // it is destroyed, or the provider is not configured
	}
	var plan, state appModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if plan.Agent.IsUnknown() && a.agent != "" {
		plan.Agent = types.StringValue(a.agent)
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("agent"), plan.Agent)...)
	}
	exists := !req.State.Raw.IsNull() && len(resp.RequiresReplace) == 0
	if exists && plan.Spec.Equal(state.Spec) && plan.Image.Equal(state.Image) && plan.Replicas.Equal(state.Replicas) {
		plan.Generation, plan.Deployed, plan.URLs, plan.PublicURLs = state.Generation, state.Deployed, state.URLs, state.PublicURLs
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		return
	}
	if !plan.known() {
		return
	}
	opts := runnerapi.WriteOptions{DryRun: true}
	if exists {
		opts.Generation = state.Generation.ValueInt64()
	}
	a.dryRun(ctx, &plan, opts, &resp.Diagnostics)
}

// dryRun reports what the agent would refuse. An agent that cannot be asked now may be there when
// the plan is applied.
func (a *app) dryRun(ctx context.Context, m *appModel, opts runnerapi.WriteOptions, diags *diag.Diagnostics) {
	spec := m.desired(diags)
	if diags.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := a.on(ctx, m.Agent.ValueString(), func(ctx context.Context, c *client.Client) error {
		if opts.Generation == 0 {
			if err := absent(ctx, c, m); err != nil {
				return err
			}
		}
		_, err := c.Apps().Deploy(ctx, m.key(), spec, opts)
		return err
	})
	switch {
	case err == nil:
	case away(err):
		var why diag.Diagnostics
		failed(&why, "", err, nil)
		diags.AddAttributeWarning(path.Root("agent"), "The App was not checked by its agent", why[0].Detail())
	default:
		failed(diags, "The agent would refuse the App", err, fieldsOfApp)
	}
}

// fieldsOfApp are fields of the call that have an attribute.
var fieldsOfApp = map[string]path.Path{"path.namespace": path.Root("namespace"), "path.name": path.Root("name"), "image": path.Root("image"), "replicas": path.Root("replicas")}

// away reports whether an error is about the way to the agent, or about the Runner's credentials
// that have yet to be made.
func away(err error) bool {
	if errors.Is(err, errUnknown) || errors.As(err, new(noAgentError)) {
		return true
	}
	p, ok := problem.Of(err)
	return ok && (p.Code == client.CodeUnreachable || p.Code == runnerapi.CodeUnavailable || p.Passing())
}

// absent refuses to take over an App that is there.
func absent(ctx context.Context, c *client.Client, m *appModel) error {
	_, err := c.Apps().Get(ctx, m.key())
	switch {
	case err == nil:
		return problem.Errorf(problem.Conflict, fmt.Sprintf("import it: terraform import ADDRESS %s/%s", m.Agent.ValueString(), m.key()), "there is an App %s already", m.key()).WithField("path.name")
	case isGone(err):
		return nil
	}
	return err
}

func (a *app) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m appModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	limit, diags := m.Timeouts.Create(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if m.Agent.IsUnknown() || m.Agent.ValueString() == "" {
		resp.Diagnostics.AddAttributeError(path.Root("agent"), "No agent", "Neither the App nor the provider names an agent.\nfix: set agent")
	}
	if resp.Diagnostics.HasError() {
		return
	}
	m.ID = types.StringValue(m.Agent.ValueString() + "/" + m.key().String())
	if a.deploy(ctx, &m, limit, 0, &resp.Diagnostics) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}

func (a *app) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state appModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	limit, diags := m.Timeouts.Update(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !m.Generation.IsUnknown() { // wait and timeouts are the provider's own
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	if a.deploy(ctx, &m, limit, state.Generation.ValueInt64(), &resp.Diagnostics) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}

// deploy deploys an App of a generation, 0 for none, and waits for the outcome. It reports whether
// the App was changed: the state has what was deployed, even if its rollout failed.
func (a *app) deploy(ctx context.Context, m *appModel, limit time.Duration, generation int64, diags *diag.Diagnostics) (changed bool) {
	spec := m.desired(diags)
	if diags.HasError() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.on(ctx, m.Agent.ValueString(), func(ctx context.Context, c *client.Client) error {
		if generation == 0 {
			if err := absent(ctx, c, m); err != nil {
				return err
			}
		}
		now, err := c.Apps().Deploy(ctx, m.key(), spec, runnerapi.WriteOptions{Generation: generation})
		if err != nil {
			return err
		}
		if err := m.observe(now); err != nil {
			return err
		}
		changed = true
		if !m.Wait.ValueBool() {
			return nil
		}
		now, err = c.Apps().Wait(ctx, m.key(), now.Generation)
		if err != nil {
			return err
		}
		outcome(now, limit, diags)
		return m.observe(now)
	})
	if err != nil {
		failed(diags, "The App was not deployed", err, fieldsOfApp)
	}
	return changed
}

// outcome reports a rollout that did not succeed.
func outcome(now runnerapi.App, limit time.Duration, diags *diag.Diagnostics) {
	if now.Settled() && (now.Status.Phase == runnerapi.PhaseHealthy || now.Status.Phase == runnerapi.PhasePaused) {
		return
	}
	d := now.Status.Diagnosis
	if d == nil {
		diags.AddError("The App is not healthy yet", fmt.Sprintf("After %s it is %s, and waits for %s. The rollout continues.\nfix: raise the timeout, or set wait = false", limit, now.State(), cmp.Or(now.Status.WaitingFor, "its pods")))
		return
	}
	lines := append([]string{d.Message, "fix: " + d.Fix, "code: " + string(d.Cause)}, d.LastLines...)
	diags.AddError("The App is "+strings.ToLower(now.State()), strings.Join(lines, "\n"))
}

func (a *app) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m appModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	now, err := a.get(ctx, &m)
	switch {
	case err != nil && isGone(err):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		failed(&resp.Diagnostics, "Cannot read the App", err, nil)
		return
	case m.Deployed.IsNull(): // imported
		text, unwritten := specText(now.Spec)
		m.Spec, m.Wait, err = types.StringValue(text), types.BoolValue(true), unwritten
	default:
		err = m.drifted(now.Spec)
	}
	if err = errors.Join(err, m.observe(now)); err != nil {
		failed(&resp.Diagnostics, "Cannot read the App", err, nil)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (a *app) get(ctx context.Context, m *appModel) (now runnerapi.App, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = a.on(ctx, m.Agent.ValueString(), func(ctx context.Context, c *client.Client) error {
		now, err = c.Apps().Get(ctx, m.key())
		return err
	})
	return now, err
}

func (a *app) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m appModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	limit, diags := m.Timeouts.Delete(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.on(ctx, m.Agent.ValueString(), func(ctx context.Context, c *client.Client) error {
		if err := c.Apps().Delete(ctx, m.key(), runnerapi.WriteOptions{}); err != nil {
			return err
		}
		return untilGone(ctx, c, m.key())
	})
	if err != nil && !isGone(err) {
		failed(&resp.Diagnostics, "The App was not deleted", err, nil)
	}
}

// untilGone waits until an App is not there any more, and returns the error that says so.
func untilGone(ctx context.Context, c *client.Client, key runnerapi.Key) error {
	waits := ""
	for {
		now, err := c.Apps().Get(ctx, key)
		switch {
		case err == nil:
			waits = now.Status.WaitingFor
		case !away(err) || ctx.Err() != nil:
			return err
		}
		if !retry.Wait(ctx, gonePause) {
			return fmt.Errorf("%s is being deleted, and waits for %s (fix: raise the timeout of delete, or see what holds it)", key, cmp.Or(waits, "its objects"))
		}
	}
}

// ImportState takes AGENT/NAMESPACE/NAME, or NAMESPACE/NAME at the provider's agent.
func (a *app) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	parts := strings.Split(req.ID, "/")
	if len(parts) == 2 && a.agent != "" {
		parts = append([]string{a.agent}, parts...)
	}
	if len(parts) != 3 {
		resp.Diagnostics.AddError("Not the ID of an App", fmt.Sprintf("%q is not AGENT/NAMESPACE/NAME, nor NAMESPACE/NAME with the provider's agent.", req.ID))
		return
	}
	for name, value := range map[string]attr.Value{
		"id": types.StringValue(strings.Join(parts, "/")), "agent": types.StringValue(parts[0]), "namespace": types.StringValue(parts[1]), "name": types.StringValue(parts[2]),
	} {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root(name), value)...)
	}
}
