package constants

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOfType(t *testing.T) {
	dir := t.TempDir()
	for name, source := range map[string]string{
		"a.go":      "package p\n\ntype Kind string\n\nconst (\n\tA    Kind = \"a\"\n\tB, C Kind = `b`, \"c\\\"\"\n\tOther = \"other\"\n\tN int = 1\n)\n",
		"b.go":      "package p\n\nconst D   Kind   =   \"d\" // Kind = \"e\"\n\nvar V Kind = \"v\"\n",
		"b_test.go": "package p\n\nconst T Kind = \"t\"\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600))
	}
	assert.Equal(t, []string{"a", "b", `c"`, "d"}, OfType(t, dir, "Kind"))
}
