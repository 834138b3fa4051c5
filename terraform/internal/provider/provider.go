// Package provider describes the product to Terraform and OpenTofu: resources of a control plane by
// the operator API, and Apps by the Runner API. It calls both with the clients that the command
// lines have.
package provider

import (
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Address is where registries have the provider.
const Address = "registry.terraform.io/pipeops/pipeops"

// The variables that stand in for settings of the provider, as the command lines read them.
const (
	envOperator = "PIPEOPS_OPERATOR_CREDENTIALS"
	envRunner   = "PIPEOPS_RUNNER_CREDENTIALS"
	envAgent    = "PIPEOPS_AGENT"
)

type pipeops struct{ version string }

// New returns the provider's constructor.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &pipeops{version} }
}

// settings are the provider's block.
type settings struct {
	OperatorFile types.String `tfsdk:"operator_credentials_file"`
	Operator     types.String `tfsdk:"operator_credentials"`
	RunnerFile   types.String `tfsdk:"runner_credentials_file"`
	Runner       types.String `tfsdk:"runner_credentials"`
	Agent        types.String `tfsdk:"agent"`
}

func (p *pipeops) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "pipeops", p.version
}

func (p *pipeops) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "Manages a control plane as an operator, and Apps as a Runner.",
		Attributes: map[string]schema.Attribute{
			"operator_credentials_file": schema.StringAttribute{Optional: true, Description: "File that `pipeops-controlplane operator create -o FILE` wrote. By default " + envOperator + " names it. The provider renews the certificate in it."},
			"operator_credentials":      schema.StringAttribute{Optional: true, Sensitive: true, Description: "The content of such a file, in place of it."},
			"runner_credentials_file":   schema.StringAttribute{Optional: true, Description: "File that `pipeops-controlplane runner create -o FILE` wrote. By default " + envRunner + " names it. Without either, the provider exchanges the ID token of a CI job, as `pipeops-runner` does."},
			"runner_credentials":        schema.StringAttribute{Optional: true, Sensitive: true, Description: "The content of such a file, in place of it, such as `credentials` of a `pipeops_runner`."},
			"agent":                     schema.StringAttribute{Optional: true, Description: "Name or ID of the agent of Apps that name none. By default that in " + envAgent + "."},
		},
	}
}

func (p *pipeops) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var s settings
	resp.Diagnostics.Append(req.Config.Get(ctx, &s)...)
	for name, pair := range map[string][2]types.String{"operator_credentials": {s.Operator, s.OperatorFile}, "runner_credentials": {s.Runner, s.RunnerFile}} {
		if !pair[0].IsNull() && !pair[1].IsNull() {
			resp.Diagnostics.AddAttributeError(path.Root(name), "Two sets of credentials", "Set "+name+" or "+name+"_file, not both.")
		}
	}
	if resp.Diagnostics.HasError() {
		return
	}
	c := newClients(p.version, s)
	resp.ResourceData, resp.DataSourceData = c, c
}

func (p *pipeops) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newToken, newRunner, newWebhook, newHost, newApp}
}

func (p *pipeops) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{newAgents, newAppData}
}

// orEnvironment returns a setting, or the variable in place of it.
func orEnvironment(setting types.String, name string) string {
	if !setting.IsNull() {
		return setting.ValueString()
	}
	return os.Getenv(name)
}
