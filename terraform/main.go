// Command terraform-provider-pipeops is the provider for Terraform and OpenTofu. They start it, and
// talk with it over a local socket.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/pipeops/pipeops-vm-agent/terraform/internal/provider"
)

// version is stamped by a release.
var version = "dev"

func main() {
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{Address: provider.Address})
	if err != nil {
		fmt.Fprintln(os.Stderr, "terraform-provider-pipeops:", err)
		os.Exit(1)
	}
}
