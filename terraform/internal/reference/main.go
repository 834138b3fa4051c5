// Command reference writes docs/reference/terraform.md: page.tmpl, and a table of each schema's
// attributes, as the provider reports them.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/pipeops/pipeops-vm-agent/terraform/internal/provider"
)

//go:generate go run .

//go:embed page.tmpl
var head string

const file = "../../../docs/reference/terraform.md"

func main() {
	text, err := page(context.Background())
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // a page of the repository
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// page returns the whole page.
func page(ctx context.Context) (string, error) {
	schema, err := providerserver.NewProtocol6(provider.New("dev")())().GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(head)
	describe(&text, "Provider", schema.Provider)
	for _, name := range slices.Sorted(maps.Keys(schema.ResourceSchemas)) {
		describe(&text, "Resource "+name, schema.ResourceSchemas[name])
	}
	for _, name := range slices.Sorted(maps.Keys(schema.DataSourceSchemas)) {
		describe(&text, "Data source "+name, schema.DataSourceSchemas[name])
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}

func describe(text *strings.Builder, title string, schema *tfprotov6.Schema) {
	fmt.Fprintf(text, "## %s\n\n%s\n\n| attribute | | |\n|---|---|---|\n", title, wrap(schema.Block.Description))
	rows(text, "", schema.Block.Attributes)
	text.WriteString("\n")
}

// rows writes attributes, those that are set before those that are read.
func rows(text *strings.Builder, below string, attributes []*tfprotov6.SchemaAttribute) {
	rank := func(a *tfprotov6.SchemaAttribute) int {
		switch {
		case a.Required:
			return 0
		case a.Optional:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(attributes, func(a, b *tfprotov6.SchemaAttribute) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	})
	for _, a := range attributes {
		use := []string{[]string{"required", "optional", "read"}[rank(a)]}
		if a.Sensitive {
			use = append(use, "sensitive")
		}
		if a.WriteOnly {
			use = append(use, "write-only")
		}
		fmt.Fprintf(text, "| `%s%s` | %s | %s |\n", below, a.Name, strings.Join(use, ", "), cmp.Or(a.Description, "Limits of time."))
		if a.NestedType != nil {
			rows(text, below+a.Name+".", a.NestedType.Attributes)
		}
	}
}

// wrap breaks a text into lines of at most 100 columns.
func wrap(text string) string {
	var wrapped strings.Builder
	width := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i > 0 && width+1+len(word) > 100:
			wrapped.WriteString("\n")
			width = 0
		case i > 0:
			wrapped.WriteString(" ")
			width++
		}
		wrapped.WriteString(word)
		width += len(word)
	}
	return wrapped.String()
}
