package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	yamlnode "go.yaml.in/yaml/v3" // for its nodes, which know their lines and leave aliases as they are
)

// Node is a place in a document.
type Node = yamlnode.Node

// The kinds of nodes.
const (
	Mapping  = yamlnode.MappingNode
	Sequence = yamlnode.SequenceNode
	Alias    = yamlnode.AliasNode
	Scalar   = yamlnode.ScalarNode
)

// DoubleQuoted is the style of a text that no parser takes for anything else.
const DoubleQuoted = yamlnode.DoubleQuotedStyle

// Budget is the remaining limit of a stream's documents together.
type Budget struct {
	limits        Limits
	values, bytes int
}

// Budget returns the budget of a stream that Scan has accepted.
func (l Limits) Budget() *Budget { return &Budget{limits: l} }

// Document is one that is within its limits.
type Document struct {
	Root  *Node // its lines are counted within the document
	part  Part
	value any
}

// Document parses one; nil where a text holds comments alone.
func (b *Budget) Document(part Part) (*Document, error) {
	root, err := part.parse()
	if root == nil || err != nil {
		return nil, err
	}
	value, err := b.value(part, root, 0)
	if err != nil {
		return nil, err
	}
	return &Document{Root: root, part: part, value: value}, nil
}

// JSON returns the document as Kubernetes reads YAML.
func (d *Document) JSON() ([]byte, error) {
	raw, err := json.Marshal(d.value)
	if err != nil { // it has an infinite number
		return nil, d.part.fail(d.Root.Line, "the document has .inf or .nan, which JSON cannot express")
	}
	return raw, nil
}

func (p Part) fail(line int, format string, args ...any) error {
	return &Error{Line: p.Line + line - 1, Message: fmt.Sprintf(format, args...)}
}

func (p Part) parse() (*Node, error) {
	if root := p.parseJSON(); root != nil {
		return root, nil
	}
	decoder := yamlnode.NewDecoder(bytes.NewReader(p.Text))
	doc, next := Node{}, Node{}
	if err := decode(decoder, &doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, p.syntax(err)
	}
	if err := decode(decoder, &next); err == nil {
		return nil, p.fail(next.Line, "a document begins without a line ---")
	} else if !errors.Is(err, io.EOF) {
		return nil, p.syntax(err)
	}
	if doc.Kind != yamlnode.DocumentNode || len(doc.Content) != 1 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind == yamlnode.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

var (
	yamlLine   = regexp.MustCompile(`^yaml: line (\d+): `)
	quotedText = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|'[^']{2,}'")
)

// syntax returns the parser's error without what it quotes.
func (p Part) syntax(err error) error {
	text, line := err.Error(), 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		_, _ = fmt.Sscan(m[1], &line)
		text = text[len(m[0]):]
	}
	text = quotedText.ReplaceAllString(strings.TrimPrefix(text, "yaml: "), "…")
	return p.fail(line, "not YAML: %.200s", text)
}

// PlainAliases refuses a text whose aliases expand beyond the limits. It is for decoders that are
// not ours, which write aliases out: kustomize's, Helm's and Kubernetes' own. It accepts duplicate
// keys.
func (l Limits) PlainAliases(text []byte) error {
	if UTF16(text) {
		return errUTF8
	}
	if !starred(text) {
		return nil
	}
	if err := l.Scan(text); err != nil {
		return err
	}
	budget := l.Budget()
	for decoder := yamlnode.NewDecoder(bytes.NewReader(text)); ; {
		var n Node
		err := decode(decoder, &n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return Part{Line: 1}.syntax(err)
		}
		if err := budget.hold(&n, 0); err != nil {
			return err
		}
	}
}

// decode returns the parser's; a panic in it on a stranger's text must not end the process.
func decode(d *yamlnode.Decoder, into *Node) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("yaml: not YAML")
		}
	}()
	return d.Decode(into)
}

// hold counts a node and all below it.
func (b *Budget) hold(n *Node, depth int) error {
	if err := b.take(Part{Line: 1}, n, depth); err != nil {
		return err
	}
	if n.Kind == Alias {
		return b.hold(n.Alias, depth+1)
	}
	for _, child := range n.Content {
		if err := b.hold(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
