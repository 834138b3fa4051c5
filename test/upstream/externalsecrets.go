package upstream

import (
	"context"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

const (
	externalSecretsModule = "test/upstream/externalsecrets"
	externalSecrets       = "github.com/external-secrets/external-secrets"
)

// operator is External Secrets with the providers fake and kubernetes, and without generators.
var operator = trimmed{
	in: externalSecretsModule, module: externalSecrets, folder: "operator",
	files: map[string][]byte{
		filepath.Join("pkg", "provider", "register", "register.go"): []byte(`// Package register has the providers that need no cloud's library.
package register

import (
	_ "` + externalSecrets + `/pkg/provider/fake"
	_ "` + externalSecrets + `/pkg/provider/kubernetes"
)
`),
		filepath.Join("pkg", "generator", "register", "register.go"): []byte("// Package register has no generator.\npackage register\n"),
	},
}

// ExternalSecretsKinds returns the definitions of External Secrets' kinds, as its module has them.
func ExternalSecretsKinds(ctx context.Context) (definitions [][]byte, err error) {
	version, err := required(ctx, inputs.Path(externalSecretsModule), externalSecrets)
	if err != nil {
		return nil, err
	}
	from, err := download(ctx, externalSecrets+"@"+version)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(from, "config", "crds", "bases", "*external-secrets.io_*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, text)
	}
	return definitions, nil
}
