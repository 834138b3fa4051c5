package deployments

import _ "embed"

//go:embed namespaces.yaml
var namespacesManifest []byte

// Namespaces returns the manifest of a first namespace for Apps, production.
func Namespaces() []byte { return namespacesManifest }
