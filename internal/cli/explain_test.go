package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/catalog"
)

func explain(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := cli.NewExplain("prog")
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.Execute()
	return out.String(), err
}

func TestExplain_PrintsEntry(t *testing.T) {
	entry, _ := catalog.Named("policy_denied")
	want := "PO-3001 policy_denied: " + entry.Title + "\n  " + entry.Meaning + "\n  fix: " + entry.Fix + "\n  page: " + entry.URL() + "\n"
	for _, code := range []string{"PO-3001", "po-3001", "3001", "policy_denied", "Policy_Denied"} {
		out, err := explain(code)
		require.NoError(t, err)
		assert.Equal(t, want, out)
	}
	out, err := explain("CONFLICT")
	require.NoError(t, err)
	assert.Contains(t, out, "PO-1007 conflict: ")
	assert.Contains(t, out, "\n\nPO-2016 Conflict: ")

	out, err = explain("po-3001", "-o", "json")
	require.NoError(t, err)
	var got catalog.Entry
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	entry.Page = entry.URL()
	assert.Equal(t, entry, got)
}

func TestExplain_ListsAll(t *testing.T) {
	out, err := explain()
	require.NoError(t, err)
	assert.Equal(t, len(catalog.All())+1, strings.Count(out, "\n"))
	assert.Regexp(t, `(?m)^PO-2001 +ImageNotFound +Image not found$`, out)
	out, err = explain("-o", "json")
	require.NoError(t, err)
	var all []catalog.Entry
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	assert.Len(t, all, len(catalog.All()))
	out, err = explain("-o", "name")
	require.NoError(t, err)
	assert.Contains(t, out, "policy_denied\n")
}

func TestExplain_SuggestsNearest(t *testing.T) {
	for code, want := range map[string]string{
		"PO-3999":      "there is no code PO-3999 (did you mean PO-3007?)",
		"policy_denid": "there is no code policy_denid (did you mean policy_denied?)",
		"policydenied": "there is no code policydenied (did you mean policy_denied?)",
		"PO-7000":      "there is no code PO-7000",
		"zebra":        "there is no code zebra",
	} {
		_, err := explain(code)
		require.EqualError(t, err, want+" (fix: list all with `prog explain`)")
		assert.True(t, cli.IsUsage(err))
	}
}
