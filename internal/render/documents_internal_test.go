package render

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDocuments_SplitLikeHelm(t *testing.T) {
	type seen struct {
		text         string
		number, line int
	}
	var all []seen
	text := "\n# nothing else\n---\na: 1\n--- # a comment\nb: 2\nc: |\n  ---\n---d: 3\n---\n\n---"
	assert.NoError(t, documents([]byte(text), func(d document) error {
		all = append(all, seen{string(d.text), d.number, d.line})
		return nil
	}))
	assert.Equal(t, []seen{
		{"\n# nothing else\n", 1, 1},
		{"\na: 1\n", 2, 3},
		{" # a comment\nb: 2\nc: |\n  ---\n", 3, 5},
		{"d: 3\n", 4, 9},
	}, all)
	assert.Equal(t, "a.yaml, document 4, from line 9 of what it renders to", Locate("a.yaml", text, "d: 3"))
	assert.Equal(t, "a.yaml", Locate("a.yaml", text, "e: 4"))
}

func TestDocuments_NameLine(t *testing.T) {
	second := "a: 1\n---\nb: 2\nc: 3\n"
	for text, says := range map[string]string{
		second + "d: {\n":    "x.yaml, document 2, line ",
		second + "  d: 4\n":  "x.yaml, document 2, line 5 of what it renders to: ",
		second + "d: \x00\n": "x.yaml, document 2, from line 2 of what it renders to: a manifest has no zero bytes",
		second + "---\na: [" + strings.Repeat("1,", maxValues) + "]":   "x.yaml, document 3, from line 5 of what it renders to: with this one",
		second + strings.Repeat("---\na: b\n", MaxObjects):             "x.yaml, document 2001, from line 4001 of what it renders to: with this one the chart has more than 2000 objects",
		second + "--- x\na: [" + strings.Repeat("1,", maxValues) + "]": "x.yaml, document 3, ",
	} {
		failed := readable(Result{Texts: []Text{{"x.yaml", []byte(text)}}}, nobody{})
		if assert.NotNil(t, failed, says) {
			assert.Contains(t, failed.Message, says)
		}
	}
}

func FuzzDocuments(f *testing.F) {
	f.Add([]byte("---\na: 1\n---\nb"))
	f.Fuzz(func(t *testing.T, text []byte) {
		number, line, size := 0, 0, 0
		err := documents(text, func(d document) error {
			if d.number != number+1 || d.line <= line && number > 0 || len(strings.TrimSpace(string(d.text))) == 0 {
				return errors.New("not in order")
			}
			number, line, size = d.number, d.line, size+len(d.text)
			return nil
		})
		assert.NoError(t, err)
		assert.LessOrEqual(t, size, len(text))
	})
}
