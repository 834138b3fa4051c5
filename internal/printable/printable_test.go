package printable_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"web": "web", "ümläut 日本 ✓": "ümläut 日本 ✓",
		"a\x1b[2Kb": "a [2Kb", "a\nb\tc\x7f": "a b c ",
		"a\u009b2Kb": "a\uFFFD2Kb", "a\u202eb": "a\uFFFDb", "a\u2066b\u200bc\ufeff": "a\uFFFDb\uFFFDc\uFFFD",
		"a\u2028b\u2029": "a\uFFFDb\uFFFD", "a\xffb\xc3": "a\uFFFDb\uFFFD", "a\U000e0041b\u3164": "a\uFFFDb\uFFFD",
	} {
		assert.Equal(t, want, printable.Text(in), "%q", in)
	}
	assert.Equal(t, strings.Repeat("a", printable.Max)+"…", printable.Text(strings.Repeat("a", printable.Max+1)))
	assert.Equal(t, strings.Repeat("a", printable.Max-1)+"…", printable.Text(strings.Repeat("a", printable.Max-1)+"日本"))
	assert.Equal(t, "a\n\tb \n", printable.Lines("a\n\tb\r\n"))
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"a\x1b[2K", "\u009b\u202e", "\xff\xfe", "a\nb", "\U000e0041"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, out := range []string{printable.Text(s), strings.NewReplacer("\n", "", "\t", "").Replace(printable.Lines(s))} {
			require.True(t, utf8.ValidString(out))
			for _, r := range out {
				require.False(t, unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp), "%U of %q", r, s)
			}
		}
		require.LessOrEqual(t, len(printable.Text(s)), 3*printable.Max+3)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var back, want string
		require.NoError(t, json.Unmarshal(text, &want))
		escaped := printable.JSON(text)
		require.NoError(t, json.Unmarshal(escaped, &back))
		require.Equal(t, want, back, "the value stays")
		require.False(t, strings.ContainsFunc(string(escaped), printable.Hidden))
	})
}
