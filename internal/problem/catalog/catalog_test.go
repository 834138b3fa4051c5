package catalog_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem/catalog"
)

var update = flag.Bool("update", false, "write docs/reference/errors.md again")

func TestCatalog_PageCommitted(t *testing.T) {
	file := "../../../" + catalog.Page
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(catalog.Markdown()), 0o600))
	}
	committed, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, catalog.Markdown() == string(committed), "%s is stale; run: go generate ./internal/problem/catalog", catalog.Page)
}

func TestCatalog_EntriesComplete(t *testing.T) {
	names, last := map[string]bool{}, ""
	for _, area := range catalog.Areas() {
		for _, e := range area.Entries {
			assert.Regexp(t, "^"+area.Prefix+"[0-9]{3}$", e.Code)
			assert.Greater(t, e.Code, last, "codes are in order, and each is used once")
			assert.False(t, names[e.Name], "%s has the name of another entry", e.Code)
			assert.Regexp(t, `^([a-z0-9]+(_[a-z0-9]+)*|[A-Z][A-Za-z]+)$`, e.Name)
			assert.Regexp(t, `^[A-Za-z][^.]*[^.]$`, e.Title, e.Code)
			assert.Regexp(t, `[.]$`, e.Meaning, e.Code)
			assert.Regexp(t, `[.]$`, e.Fix, e.Code)
			page, _, _ := strings.Cut(e.Page, "#")
			assert.FileExists(t, "../../../"+page, e.Code)
			for sentence := range strings.SplitSeq(e.Meaning+" "+e.Fix, ". ") {
				assert.LessOrEqual(t, len(strings.Fields(sentence)), 25, "%s: %s", e.Code, sentence)
			}
			names[e.Name], last = true, e.Code
		}
	}
}

func TestFind_CodeOrName(t *testing.T) {
	for text, want := range map[string][]string{
		"PO-3001": {"PO-3001"}, "po-3001": {"PO-3001"}, "3001": {"PO-3001"}, "po3001": {"PO-3001"},
		"policy_denied": {"PO-3001"}, "POLICY_DENIED": {"PO-3001"}, "imagenotfound": {"PO-2001"},
		"conflict": {"PO-1007"}, "Conflict": {"PO-2016"}, "CONFLICT": {"PO-1007", "PO-2016"},
		"PO-3999": nil, "no_such": nil, "": nil, "PO-300": nil,
	} {
		var codes []string
		for _, e := range catalog.Find(text) {
			codes = append(codes, e.Code)
		}
		assert.Equal(t, want, codes, text)
	}
}

func TestNear(t *testing.T) {
	for text, want := range map[string]string{"PO-3000": "PO-3001", "po-3999": "PO-3007", "4000": "PO-4001", "PO-1100": "PO-1101"} {
		near, found := catalog.Near(text)
		assert.True(t, found, text)
		assert.Equal(t, want, near.Code, text)
	}
	for _, text := range []string{"PO-7001", "policy", ""} {
		_, found := catalog.Near(text)
		assert.False(t, found, text)
	}
}
