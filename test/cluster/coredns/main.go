// Command coredns is CoreDNS with only the plugins that a cluster's DNS needs. The stock binary
// links every cloud provider's SDK and takes several times as long to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// The list names every stock plugin; CoreDNS refuses to start when one of
	// them is missing.
	dnsserver.Directives = []string{
		"reload", "ready", "health", "errors", "cache", "hosts", "kubernetes", "forward",
	}
	coremain.Run()
}
