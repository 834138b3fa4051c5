package render

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// document is one of a text's YAML documents.
type document struct {
	text   []byte
	number int // from 1, of those with content
	line   int // of the text, on which it begins, from 1
}

// documents passes on each document of a text. It separates them as Helm does: by lines that begin
// with three dashes, followed by any text.
func documents(text []byte, each func(document) error) error {
	d := document{line: 1}
	hand := func() error {
		if len(bytes.TrimSpace(d.text)) == 0 {
			return nil
		}
		d.number++
		return each(d)
	}
	line, begin := 1, 0
	for at := 0; at < len(text); line++ {
		end := len(text)
		if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		if bytes.HasPrefix(text[at:], []byte("---")) {
			d.text = text[begin:at]
			if err := hand(); err != nil {
				return err
			}
			begin, d.line = at+3, line
		}
		at = end
	}
	d.text = text[begin:]
	return hand()
}

// in returns the place of a document in the output, where a user who renders the chart finds it.
func (d document) in(name string) string {
	return fmt.Sprintf("%s, document %d, from line %d of what it renders to", name, d.number, d.line)
}

var yamlLine = regexp.MustCompile(`yaml: (unmarshal errors: )?line (\d+): `)

// located returns an error of reading a document, with its line in the whole text.
func (d document) located(name string, err error) string {
	what := strings.Join(strings.Fields(err.Error()), " ")
	m := yamlLine.FindStringSubmatchIndex(what)
	if m == nil {
		return d.in(name) + ": " + what
	}
	n, err := strconv.Atoi(what[m[4]:m[5]])
	if err != nil {
		return d.in(name) + ": " + what
	}
	return fmt.Sprintf("%s, document %d, line %d of what it renders to: %s", name, d.number, d.line+n-1, what[m[1]:])
}

// Locate returns the place of a document in a template's output; the template's name if the
// document is not found.
func Locate(name, text, content string) string {
	found := errors.New("found")
	where := name
	content = strings.TrimSpace(content)
	_ = documents([]byte(text), func(d document) error {
		if !bytes.Contains(d.text, []byte(content)) {
			return nil
		}
		where = d.in(name)
		return found
	})
	return where
}
