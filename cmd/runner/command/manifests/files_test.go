package manifests

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReadFiles_ErrorsNameLine(t *testing.T) {
	var j manifestFiles
	j.add("a.yaml", []byte("# two\nkind: A\n---\nkind: B\n---\n# none\n\n"))
	j.add("b.yaml", []byte("\ufeff---\nkind: C\n"))
	j.add("-", []byte("kind: D\n"))
	assert.Equal(t, "# two\nkind: A\n---\nkind: B\n---\n# none\n---\n---\nkind: C\n---\nkind: D\n", string(j.text))
	for at, want := range map[string]string{
		"document 1, line 2: wrong":                      "a.yaml:2 (document 1): wrong",
		"document 2, line 4: wrong":                      "a.yaml:4 (document 2): wrong",
		"document 3, line 9: ConfigMap/x":                "b.yaml:2 (document 1): ConfigMap/x",
		"document 4, line 11":                            "standard input:1 (document 1)",
		"document 1, line 2: as in document 4, line 11":  "a.yaml:2 (document 1): as in standard input:1 (document 1)",
		"ConfigMap/x: there is no document in this text": "ConfigMap/x: there is no document in this text",
	} {
		assert.Equal(t, want, j.locate(at))
	}
}
