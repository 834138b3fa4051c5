package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/mapplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// Attributes that resources share. A fixed one replaces the resource when it changes.

func required(doc string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, Description: doc}
}

func computed(doc string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, Description: doc, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}}
}

func secret(doc string) schema.StringAttribute {
	a := computed(doc)
	a.Sensitive = true
	return a
}

// defaulted is optional. After an import it has what the server reports, as the default has it.
func defaulted(doc, value string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(value), Description: doc}
}

func fixed(a schema.StringAttribute) schema.StringAttribute {
	a.PlanModifiers = append(a.PlanModifiers, stringplanmodifier.RequiresReplace())
	return a
}

func fixedMap(doc string) schema.MapAttribute {
	return schema.MapAttribute{Optional: true, ElementType: types.StringType, Description: doc, PlanModifiers: []planmodifier.Map{mapplanmodifier.RequiresReplace()}}
}

func fixedNumber(doc string) schema.Int64Attribute {
	return schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(0), Description: doc, PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()}}
}

func fixedBool(doc string) schema.BoolAttribute {
	a := flag(doc)
	a.PlanModifiers = []planmodifier.Bool{boolplanmodifier.RequiresReplace()}
	return a
}

func flag(doc string) schema.BoolAttribute {
	return schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false), Description: doc}
}

// fixedDuration replaces the resource only for another length of time. The server may choose one.
func fixedDuration(doc string, computed bool) schema.StringAttribute {
	a := schema.StringAttribute{Optional: true, Computed: computed, Description: doc, Validators: []validator.String{isDuration{}}}
	if computed {
		a.PlanModifiers = append(a.PlanModifiers, stringplanmodifier.UseStateForUnknown())
	}
	another := func(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
		now, err := duration(req.PlanValue)
		before, earlier := duration(req.StateValue)
		resp.RequiresReplace = err != nil || earlier != nil || now != before
	}
	const why = "Another length of time replaces the resource."
	a.PlanModifiers = append(a.PlanModifiers, stringplanmodifier.RequiresReplaceIf(another, why, why))
	return a
}

// duration returns a length of time; 0 for none.
func duration(text types.String) (d operatorapi.Duration, err error) {
	if text.IsNull() || text.IsUnknown() {
		return 0, nil
	}
	return d, d.UnmarshalText([]byte(text.ValueString()))
}

// isDuration accepts lengths of time that are not 0.
type isDuration struct{}

func (isDuration) Description(context.Context) string {
	return "a length of time, such as 90s, 5m or 24h"
}
func (d isDuration) MarkdownDescription(c context.Context) string { return d.Description(c) }

func (d isDuration) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	length, err := duration(req.ConfigValue)
	if err == nil && length <= 0 && !req.ConfigValue.IsNull() && !req.ConfigValue.IsUnknown() {
		err = fmt.Errorf("%s is not %s", time.Duration(length), d.Description(ctx))
	}
	if err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Not a length of time", err.Error())
	}
}
