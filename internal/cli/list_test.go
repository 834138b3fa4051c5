package cli_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

type animal struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Legs      int64             `json:"legs"`
	Bytes     int64             `json:"bytes"`
	Labels    map[string]string `json:"labels,omitempty"`
}

var animals = []animal{
	{"zoo", "spider", 8, 5 << 30, map[string]string{"env": "prod"}},
	{"farm", "hen", 2, 1, map[string]string{"env": "test"}},
	{"farm", "cow", 4, 20, nil},
}

// list prints the animals with those flags.
func list(t *testing.T, v any, args ...string) (string, error) {
	t.Helper()
	var out cli.Output
	var text bytes.Buffer
	cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		return out.Write(&text, v, func(w io.Writer) {
			cli.Row(w, "NAME", "LEGS", cli.Wide("BYTES"))
			for _, a := range animals {
				cli.Row(w, a.Name, a.Legs, a.Bytes)
			}
			cli.Say(w, "three in all")
		})
	}}
	cmd.SetFlagErrorFunc(cli.FlagError)
	out.AddList(cmd)
	out.AddSelector(cmd)
	cmd.Flags().BoolVar(&out.Namespaced, "A", false, "")
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return text.String(), err
}

func TestList_Flags(t *testing.T) {
	for args, want := range map[[2]string]string{
		{}:                                  "NAME     LEGS\nspider   8\nhen      2\ncow      4\nthree in all\n",
		{"-o=wide"}:                         "NAME     LEGS   BYTES\nspider   8      5368709120\nhen      2      1\ncow      4      20\nthree in all\n",
		{"-o=name"}:                         "spider\nhen\ncow\n",
		{"--no-headers", "--sort-by=.legs"}: "hen      2\ncow      4\nspider   8\nthree in all\n",
		{"--sort-by={.name}", "-o=name"}:    "cow\nhen\nspider\n",
		{"--sort-by=labels.env", "-o=name"}: "cow\nspider\nhen\n",
		{"-l=env", "-o=name"}:               "spider\nhen\n",
		{"-l=env!=prod", "--no-headers"}:    "hen   2\ncow   4\nthree in all\n",
		{"--A", "-l=env=test"}:              "NAMESPACE   NAME   LEGS\nfarm        hen    2\nthree in all\n",
		{"-o=jsonpath={.items[*].bytes}"}:   "5368709120 1 20",
		{"-o=jsonpath={.items[1].nothing}"}: "",
		{"-l=env=test", "-o=yaml"}:          "items:\n- bytes: 1\n  labels:\n    env: test\n  legs: 2\n  name: hen\n  namespace: farm\n",
		{"-o=jsonpath={range .items[*]}{.name}{\"\\n\"}{end}", "--sort-by=bytes"}: "hen\ncow\nspider\n",
	} {
		var flags []string
		for _, arg := range args {
			if arg != "" {
				flags = append(flags, arg)
			}
		}
		text, err := list(t, map[string]any{"items": animals}, flags...)
		require.NoError(t, err, flags)
		assert.Equal(t, want, text, flags)
	}
	text, err := list(t, animals, "--sort-by=legs", "-o=jsonpath={[0].name}")
	require.NoError(t, err)
	assert.Equal(t, "hen", text, "of an array")
	text, err = list(t, animals[0], "-o=name")
	require.NoError(t, err)
	assert.Equal(t, "spider\n", text, "of one")
	for _, none := range []any{[]string(nil), map[string]any{"items": nil}} {
		text, err = list(t, none, "-o=name")
		require.NoError(t, err)
		assert.Empty(t, text, "of none")
	}
	_, err = list(t, []map[string]int{{"size": 1}}, "-o=name")
	require.ErrorContains(t, err, "the output has no names")
}

func TestList_Unsortable(t *testing.T) {
	for path, want := range map[string]string{
		".legs":        "",
		".labels.env":  "", // a field that some have
		".status.legs": "warning: --sort-by: no item has .status.legs, so the list is not sorted; -o json shows the fields\n",
	} {
		var out cli.Output
		var warned bytes.Buffer
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error {
			return out.Write(io.Discard, animals, func(io.Writer) {})
		}}
		cmd.SetErr(&warned)
		out.AddList(cmd)
		cmd.SetArgs([]string{"--sort-by", path, "-o", "name"})
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		assert.Equal(t, want, warned.String(), path)
	}
}
