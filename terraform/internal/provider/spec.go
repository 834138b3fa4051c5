package provider

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// appModel is the state of an App.
type appModel struct {
	ID         types.String `tfsdk:"id"`
	Agent      types.String `tfsdk:"agent"`
	Namespace  types.String `tfsdk:"namespace"`
	Name       types.String `tfsdk:"name"`
	Spec       types.String `tfsdk:"spec"`
	Image      types.String `tfsdk:"image"`
	Replicas   types.Int32  `tfsdk:"replicas"`
	Wait       types.Bool   `tfsdk:"wait"`
	Generation types.Int64  `tfsdk:"generation"`
	Deployed   types.String `tfsdk:"deployed_spec"`
	URLs       types.List   `tfsdk:"urls"`
	PublicURLs types.List   `tfsdk:"public_urls"`
	Timeouts   appTimeouts  `tfsdk:"timeouts"`
}

func (m *appModel) key() runnerapi.Key {
	return runnerapi.Key{Namespace: m.Namespace.ValueString(), Name: m.Name.ValueString()}
}

// known reports whether all that makes the spec is known. In a plan, other resources may have yet
// to make parts of it.
func (m *appModel) known() bool {
	return !m.Spec.IsUnknown() && !m.Image.IsUnknown() && !m.Replicas.IsUnknown() && !m.Name.IsUnknown() && !m.Namespace.IsUnknown() && !m.Agent.IsUnknown()
}

// desired reads the spec, by the rules of `pipeops-runner deploy -f`. Image and replicas of the
// resource come before those of the text.
func (m *appModel) desired(diags *diag.Diagnostics) (spec runnerapi.AppSpec) {
	const summary = "Invalid App"
	file, err := appfile.Read([]byte(m.Spec.ValueString()))
	if err != nil {
		diags.AddAttributeError(path.Root("spec"), summary, err.Error())
		return spec
	}
	for attribute, pair := range map[string][2]string{"name": {file.Name, m.Name.ValueString()}, "namespace": {file.Namespace, m.Namespace.ValueString()}} {
		if pair[0] != "" && pair[0] != pair[1] {
			diags.AddAttributeError(path.Root(attribute), summary, fmt.Sprintf("The spec is that of %s %q, and the resource has %q.", attribute, pair[0], pair[1]))
		}
	}
	spec = file.Spec
	if !m.Image.IsNull() {
		spec.Image = m.Image.ValueString()
	}
	if !m.Replicas.IsNull() {
		spec.Replicas = new(m.Replicas.ValueInt32())
	}
	if spec.Image == "" && spec.Type != runnerapi.TypePipeline {
		diags.AddAttributeError(path.Root("image"), summary, "There is no image.\nfix: set image, or image in the spec")
	}
	for _, wrong := range append(spec.Validate(), spec.ValidateName(m.Name.ValueString())...) {
		at := path.Root("spec")
		if wrong.Field == "path.name" {
			at = path.Root("name")
		}
		diags.AddAttributeError(at, summary, wrong.String())
	}
	return spec
}

// observe takes what the agent reports of the App.
func (m *appModel) observe(app runnerapi.App) error {
	deployed, err := canonical(app.Spec)
	if err != nil {
		return err
	}
	m.Generation, m.Deployed = types.Int64Value(app.Generation), types.StringValue(string(deployed))
	m.URLs, m.PublicURLs = texts(app.Status.URLs), texts(app.Status.PublicURLs)
	return nil
}

// drifted takes what others changed of the App into the attributes that manage it, so that the plan
// shows the change. What no attribute names stays as it is: see AppSpec.KeepUnnamed.
func (m *appModel) drifted(now runnerapi.AppSpec) error {
	var before runnerapi.AppSpec
	if err := json.Unmarshal([]byte(m.Deployed.ValueString()), &before); err != nil {
		return fmt.Errorf("the state's deployed_spec: %w", err)
	}
	file, err := appfile.Read([]byte(m.Spec.ValueString()))
	if err != nil {
		return fmt.Errorf("the state's spec: %w", err)
	}
	for _, s := range []*runnerapi.AppSpec{&before, &now} {
		if file.Spec.Replicas == nil && file.Spec.Autoscaling == nil && m.Replicas.IsNull() {
			s.Replicas, s.Autoscaling = nil, nil
		}
		if file.Spec.Paused == nil {
			s.Paused = nil
		}
	}
	if !m.Image.IsNull() {
		m.Image = types.StringValue(now.Image)
		before.Image, now.Image = "", ""
	}
	if !m.Replicas.IsNull() && now.Replicas != nil {
		m.Replicas = types.Int32Value(*now.Replicas)
		before.Replicas, now.Replicas = nil, nil
	}
	was, err := canonical(before)
	if err != nil {
		return err
	}
	is, err := canonical(now)
	if err != nil || bytes.Equal(was, is) {
		return err
	}
	text, err := appfile.WriteSpec(now)
	m.Spec = types.StringValue(string(text))
	return err
}

// canonical returns the one form of a spec.
func canonical(spec runnerapi.AppSpec) ([]byte, error) { return json.Marshal(spec) }
