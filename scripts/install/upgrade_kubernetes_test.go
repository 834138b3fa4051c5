package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUpgradeKubernetes runs install.sh upgrade --kubernetes with a fake k3s.
func TestUpgradeKubernetes(t *testing.T) {
	parts, err := filepath.Abs(".")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			programs := filepath.Join(env.WorkDir, "programs")
			env.Setenv("PARTS", parts)
			env.Setenv("OLD", "v1.36.2+k3s1")
			env.Setenv("NEW", "v1.36.4+k3s1")
			env.Setenv("PATH", programs+":"+env.Getenv("PATH"))
			return os.CopyFS(programs, os.DirFS("testdata/node"))
		},
	})
}

// TestK3sNumber sorts k3s's own builds, too.
func TestK3sNumber(t *testing.T) {
	said := bashOK(t, `
for version in v1.9.9+k3s9 v1.36.2+k3s1 v1.36.2+k3s2 v1.36.10+k3s1 v1.36.10-rc1+k3s1 v1.36.10; do
  if k3s_number "$version"; then echo "$REPLY"; else echo none; fi
done`)
	assert.Equal(t, "1009009009\n1036002001\n1036002002\n1036010001\nnone\nnone\n", said)
}
