package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// manifestFiles are files as one text, and where in it each is: the agent names documents and
// lines of the text alone.
type manifestFiles struct {
	text  []byte
	parts []manifestFile
}

// manifestFile is one of the files.
type manifestFile struct {
	name      string
	line      int // its first, in the joined text, from 1
	documents int // of the files before it
}

// add puts a file behind the others, as separate documents.
func (j *manifestFiles) add(name string, text []byte) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if len(j.text) > 0 {
		j.text = append(bytes.TrimRight(j.text, "\n"), "\n---\n"...)
	}
	if name == "-" {
		name = "standard input"
	}
	p := manifestFile{name: name, line: bytes.Count(j.text, []byte("\n")) + 1}
	p.documents = documents(j.text)
	j.parts = append(j.parts, p)
	j.text = append(j.text, text...)
}

// documents counts those of a text that hold something but comments.
func documents(text []byte) (n int) {
	empty := true
	for line := range bytes.Lines(text) {
		bare := bytes.TrimSpace(line)
		switch {
		case bytes.Equal(bare, []byte("---")) || bytes.HasPrefix(line, []byte("--- ")):
			empty = !bytes.HasPrefix(line, []byte("--- ")) || bytes.HasPrefix(bytes.TrimSpace(line[4:]), []byte("#"))
			if !empty {
				n++
			}
		case empty && len(bare) > 0 && bare[0] != '#' && !bytes.Equal(bare, []byte("...")):
			empty = false
			n++
		}
	}
	return n
}

var inDocument = regexp.MustCompile(`document (\d+), line (\d+)`)

// locate puts file and line where a text names a document of the joined text.
func (j *manifestFiles) locate(text string) string {
	return inDocument.ReplaceAllStringFunc(text, func(at string) string {
		m := inDocument.FindStringSubmatch(at)
		number, err1 := strconv.Atoi(m[1])
		line, err2 := strconv.Atoi(m[2])
		if err1 != nil || err2 != nil {
			return at
		}
		for i := len(j.parts) - 1; i >= 0; i-- {
			if p := j.parts[i]; line >= p.line {
				return fmt.Sprintf("%s:%d (document %d)", p.name, line-p.line+1, max(number-p.documents, 1))
			}
		}
		return at
	})
}

// locateIn does so in all fields of a problem.
func (j *manifestFiles) locateIn(p *runnerapi.Error) {
	if p == nil {
		return
	}
	p.Detail, p.Location = j.locate(p.Detail), j.locate(p.Location)
	for i := range p.Fields {
		p.Fields[i].Location, p.Fields[i].Message = j.locate(p.Fields[i].Location), j.locate(p.Fields[i].Message)
	}
}

// locateError does so in the problem that an error is about.
func (j *manifestFiles) locateError(err error) error {
	if p, ok := errors.AsType[*runnerapi.Error](err); ok {
		j.locateIn(p)
	}
	return err
}

// locateAll does so in what became of each object.
func (j *manifestFiles) locateAll(result *runnerapi.ApplyResult) {
	j.locateIn(result.Problem)
	for i := range result.Objects {
		j.locateIn(result.Objects[i].Problem)
	}
}
