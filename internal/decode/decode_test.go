package decode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

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
		"---\n# a note\n---\na: b\n---\n# the end\n":                                    `{"a":"b"}`,
		"\ufeff{\"a\": 9007199254740993}":                                               `{"a":9007199254740993}`,
		"a: {<<: {a: 1}, a: 2}\nb: {a: 2, <<: {a: 1, b: 3}}\n":                          `{"a":{"a":2},"b":{"a":2,"b":3}}`,
		"a: &a {k: 1}\nb: &b {<<: *a, l: 2}\nc: {<<: [{k: 3, m: 4}, *b]}\n":             `{"a":{"k":1},"b":{"k":1,"l":2},"c":{"k":3,"l":2,"m":4}}`,
		"yes: y\n1: 2001-01-01\n1.50: off\n\"on\": 'on'\nb: !!binary aGk=\n":            `{"1":"2001-01-01","1.5":false,"b":"hi","on":"on","true":true}`,
		"---\r\n\ufeff# a note\r\n---\n\ufeffa: \"x\n  ---\n  \ufeffy\"\n":              "{\"a\":\"x --- \ufeffy\"}",
		"---\n{\"a\":\"\\ud83d\\ude00\\/\u0085\",\n\t\"yes\": [true,null,-1.5e1,1e30]}": "{\"a\":\"😀/\u0085\",\"yes\":[true,null,-15,1e+30]}",
		"a: |\n " + strings.Repeat("*star* ", 10) + "\n":                                `{"a":"` + strings.Repeat("*star* ", 10) + `\n"}`,
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
		"a: !!int hunter2\n":                                "line 1: the value does not fit its tag !!int",
		"a: .inf\n":                                         ".inf or .nan",
		"a: {yes: 1}\nb: {yes: 1,\n on: hunter2}":           `line 3: the key on is there twice, first in line 2 as yes: without quotes both mean true; put them in quotes`,
		"a: 1\n<<: hunter2\n":                               "line 2: the merge key << takes a mapping, or a list of mappings",
		"a: 1\n<<: {a: 2}\n<<: {a: 3}\n":                    `line 3: the key "<<" is there twice, first in line 2`,
		"{\"a\":\n1,\n\"a\":\"hunter2\"}":                   `line 3: the key "a" is there twice, first in line 1`,
		"{\"a\": 1e400}":                                    "line 1: the value does not fit its tag !!float",
		"a: {~: hunter2}\n":                                 "line 1: a key has to be a text: put it in quotes",
		"\xff\xfea\x00:\x00 \x00b\x00":                      "the text is not UTF-8",
		"a\x00:\x00 \x00b\x00":                              "the text is not UTF-8",
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
	require.ErrorContains(t, decode.Text.YAML([]byte("a: b\nc: d\n"), &into), "line 2: c: unknown field")
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
		"a: {b: 1, <<: {b: 2}}\n", "yes: 0x1f\n.5: 1_0\n", "--- \n\ufeffa: 0o7\n", `{"a":"\ud83d\ude00"}`,
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
		if kubernetes, err := yaml.YAMLToJSONStrict(text); err == nil && !bytes.ContainsAny(text, "\ufeff\u0085\u2028\u2029\\!") && !bytes.Contains(bytes.ToLower(text), []byte("inf")) {
			require.JSONEq(t, string(kubernetes), string(doc))
		}
		require.LessOrEqual(t, len(doc), 6*limits.Expanded+32*limits.Values)
	})
}
