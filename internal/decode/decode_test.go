package decode_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// bomb is a text whose aliases stand for ten times as much in each level.
func bomb(size int) string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for n := 1; len(text) < size; n++ {
		ref := fmt.Sprintf("*a%d", n-1)
		text += fmt.Sprintf("a%d: &a%d [%s]\n", n, n, strings.TrimSuffix(strings.Repeat(ref+",", 10), ","))
		if n == 20 {
			break
		}
	}
	return text + "#" + strings.Repeat(" ", max(0, size-len(text)-1))
}

// repeated is a text of a size, of which some aliases stand for all the rest.
func repeated(size, aliases int) string {
	refs := "\nb: [" + strings.Repeat("*a,", aliases) + "x]\n"
	return "a: &a " + strings.Repeat("x", size-len(refs)-6) + refs
}

// allocated is how many bytes do allocates, those that are free again included.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// While a parser reads it, a text takes about nine times its size. These texts stand for
// gigabytes.
func TestDecode_RefusesAliasBombs(t *testing.T) {
	for name, c := range map[string]struct{ text, limit string }{
		"8 KiB that stand for values":  {bomb(8 << 10), "expansion"},
		"1 MiB that stand for values":  {bomb(1 << 20), "expansion"},
		"8 KiB that stand for a text":  {repeated(8<<10, 1000), "expansion"},
		"1 MiB that stand for a text":  {repeated(1<<20, 9000), "expansion"},
		"1 MiB of aliases":             {"a: &a 1\nb:\n" + strings.Repeat("- *a\n", 1<<20/5-4), "values"},
		"1 MiB of one line of aliases": {"a: &a x\nb: !!str " + strings.Repeat("*a ", 1<<20/3-8), "aliases"},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(c.text)
			require.LessOrEqual(t, len(text), 1<<20)
			for how, read := range map[string]func() error{
				"to decode":     func() error { _, err := decode.Text.FromYAML(text); return err },
				"for a program": func() error { return decode.Text.PlainAliases(text) },
			} {
				var err error
				used := allocated(func() { err = read() })
				t.Logf("%s: %d KiB: %v", how, used>>10, err)
				e := &decode.Error{}
				require.ErrorAs(t, err, &e, how)
				assert.Equal(t, c.limit, e.Limit, how)
				assert.True(t, decode.Exceeded(err))
				assert.Contains(t, err.Error(), ": ", "and what to do")
				assert.Less(t, used, uint64(12<<20), how)
			}
		})
	}
}

func TestFromYAML_AsKubernetes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "null",
		"# a note\n---\n# b\n":               "null",
		"a: yes\nb: 0644\n":                  `{"a":true,"b":420}`,
		"a: &a {b: c}\nd: {<<: *a, e: *a}\n": `{"a":{"b":"c"},"d":{"b":"c","e":{"b":"c"}}}`,
		"---\n# a note\n---\na: b\n---\n# the end\n":     `{"a":"b"}`,
		"\ufeff{\"a\": 9007199254740993}":                `{"a":9007199254740993}`,
		"a: |\n " + strings.Repeat("*star* ", 10) + "\n": `{"a":"` + strings.Repeat("*star* ", 10) + `\n"}`,
	} {
		doc, err := decode.Text.FromYAML([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, string(doc), text)
	}
}

func TestFromYAML_ErrorsNameLine(t *testing.T) {
	for text, says := range map[string]string{
		"a: hunter2\nb: [\n":                                "line 2: not YAML",
		"---\na: hunter2\na: c\n":                           `line 3: the key "a" is there twice, first in line 2`,
		"a: hunter2\n---\nb: c\n":                           "line 3: a second document begins: give one",
		"? [hunter2]\n: b\n":                                "line 1: a key has to be a text",
		"a: !!int hunter2\n":                                "cannot be read as Kubernetes reads YAML",
		"a: *hunter2\n":                                     "not YAML",
		strings.Repeat("[", 200) + "hunter2":                "not YAML",
		strings.Repeat("[", 200) + strings.Repeat("]", 200): "nested more than 100 deep: flatten them",
		strings.Repeat("-\n", 100_001):                      "more than 100000 lines, entries and levels: split the text",
		strings.Repeat("a", 1<<20+1):                        "more than 1048576 bytes: split it",
		"a: &a [*a]\n":                                      "line 1: ",
	} {
		_, err := decode.Text.FromYAML([]byte(text))
		require.Error(t, err, "%.40s", text)
		assert.Contains(t, err.Error(), says)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

func TestYAML_UnknownFields(t *testing.T) {
	var into struct {
		A string `json:"a"`
	}
	require.ErrorContains(t, decode.Text.YAML([]byte("a: b\nc: d\n"), &into), `unknown field "c"`)
	require.NoError(t, decode.Text.LooseYAML([]byte("a: b\nc: d\n"), &into))
	assert.Equal(t, "b", into.A)
}

func TestJSON_Limits(t *testing.T) {
	var into any
	for text, limit := range map[string]string{
		"[" + strings.Repeat("{},", 60_000) + "{}]":         "values",
		"[" + strings.Repeat("0,", 100_000) + "0]":          "values",
		strings.Repeat("[", 101) + strings.Repeat("]", 101): "depth",
		`"` + strings.Repeat("x", 1<<20) + `"`:              "bytes",
		`{"a":"\\"` + strings.Repeat(`,"b":[`, 60_000):      "depth",
	} {
		var err error
		data := []byte(text)
		used := allocated(func() { err = decode.Text.JSON(data, &into) })
		e := &decode.Error{}
		require.ErrorAs(t, err, &e, "%.20s", text)
		assert.Equal(t, limit, e.Limit, "%.20s", text)
		assert.Less(t, used, uint64(64<<10))
	}
	long := `{"a":"` + strings.Repeat(`,[{\"`, 150_000) + `"}`
	require.NoError(t, decode.Text.JSON([]byte(long), &into), "a text may hold any sign")
	require.Error(t, decode.Text.JSON([]byte(`{"a`), &into))
	require.Error(t, decode.Text.JSON([]byte(`{"a\`), &into))
}

// FuzzFromYAML: whatever a text is, what becomes of it is JSON, and not much more of it.
func FuzzFromYAML(f *testing.F) {
	for _, seed := range []string{
		"", "a: b\n", "a: &a [*a]\n", bomb(0), repeated(2000, 30), "a: b\n---\nc: d\n", "%YAML 1.1\n---\na: b\n", "? a\n: b\n",
		"a: !!binary aGk=\n", "a: &a {b: c}\nd: {<<: [*a, *a]}\n", "\ufeff--- |\n a\n", `{"a":[1,2e400,"\u0000"]}`, "a: [*a\r*b\u2028*c]",
	} {
		f.Add([]byte(seed))
	}
	limits := decode.Limits{Bytes: 4 << 10, Values: 500, Aliases: 50, Expanded: 8 << 10, Depth: 20}
	f.Fuzz(func(t *testing.T, text []byte) {
		_ = limits.PlainAliases(text)
		var into any
		_ = limits.JSON(text, &into)
		doc, err := limits.FromYAML(text)
		if err != nil {
			e := &decode.Error{}
			require.ErrorAs(t, err, &e)
			return
		}
		require.True(t, json.Valid(doc))
		require.LessOrEqual(t, len(doc), 6*limits.Expanded+32*limits.Values)
	})
}
