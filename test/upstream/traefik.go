package upstream

import (
	_ "embed"
	"path/filepath"
)

const traefikModule = "test/upstream/traefik"

// legoProviders is the package that takes the place of the list of all providers.
//
//go:embed legoproviders.go.txt
var legoProviders []byte

// lego is the module with Traefik's providers of the DNS challenge. Traefik needs none of the
// folders that are left out.
var lego = trimmed{
	in: traefikModule, module: "github.com/go-acme/lego/v5", folder: "lego",
	leftOut: []string{"providers", "cmd", "e2e", filepath.Join("internal", "generators")},
	files:   map[string][]byte{filepath.Join("providers", "dns", "dns.go"): legoProviders},
}
