package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	yamlnode "go.yaml.in/yaml/v3" // for its nodes, which know their lines and leave aliases as they are
	"sigs.k8s.io/yaml"
)

// Node is a place in a document.
type Node = yamlnode.Node

// The kinds of nodes.
const (
	Mapping  = yamlnode.MappingNode
	Sequence = yamlnode.SequenceNode
	Alias    = yamlnode.AliasNode
)

// Budget is the remaining limit of a stream's documents together.
type Budget struct {
	limits        Limits
	values, bytes int
}

// Budget returns the budget of a stream that Scan has accepted.
func (l Limits) Budget() *Budget { return &Budget{limits: l} }

// Document is one that is within its limits.
type Document struct {
	Root *Node // its lines are counted within the document
	part Part
}

// Document parses one; nil where a text holds comments alone.
func (b *Budget) Document(part Part) (*Document, error) {
	root, err := part.parse()
	if root == nil || err != nil {
		return nil, err
	}
	if err := b.check(part, root, 0); err != nil {
		return nil, err
	}
	return &Document{Root: root, part: part}, nil
}

// JSON returns the document as Kubernetes reads YAML, which is YAML 1.1.
func (d *Document) JSON() ([]byte, error) {
	raw, err := yaml.YAMLToJSONStrict(d.part.Text)
	if err != nil { // it quotes what it reads, which may be secret
		return nil, d.part.fail(d.Root.Line, "the document cannot be read as Kubernetes reads YAML")
	}
	return raw, nil
}

func (p Part) fail(line int, format string, args ...any) error {
	return &Error{Line: p.Line + line - 1, Message: fmt.Sprintf(format, args...)}
}

func (p Part) parse() (*Node, error) {
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

// check walks a document with its aliases, as often as they stand for something.
func (b *Budget) check(p Part, n *Node, depth int) error {
	b.values++
	b.bytes += len(n.Value)
	switch {
	case b.values > b.limits.Values || b.bytes > b.limits.Expanded:
		return b.limits.tooExpanded(p.Line + n.Line - 1)
	case depth > b.limits.Depth:
		return b.limits.tooDeep(p.Line + n.Line - 1)
	case n.Kind == Alias:
		return b.check(p, n.Alias, depth+1)
	case n.Kind == Mapping:
		return b.mapping(p, n, depth)
	}
	for _, child := range n.Content {
		if err := b.check(p, child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (b *Budget) mapping(p Part, n *Node, depth int) error {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yamlnode.ScalarNode {
			return p.fail(key.Line, "a key has to be a text")
		}
		if before, twice := seen[key.Value]; twice {
			return p.fail(key.Line, "the key %.100q is there twice, first in line %d", key.Value, p.Line+before-1)
		}
		seen[key.Value] = key.Line
		b.bytes += len(key.Value)
		if err := b.check(p, n.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// PlainAliases refuses a text whose aliases expand beyond the limits. It is for decoders that are
// not ours, which write aliases out: kustomize's, Helm's and Kubernetes' own. It accepts duplicate
// keys.
func (l Limits) PlainAliases(text []byte) error {
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
		if !budget.holds(&n, 0) {
			return l.tooExpanded(n.Line)
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

// holds reports whether the budget has room for a node and all below it.
func (b *Budget) holds(n *Node, depth int) bool {
	b.values++
	b.bytes += len(n.Value)
	switch {
	case b.values > b.limits.Values || b.bytes > b.limits.Expanded || depth > b.limits.Depth:
		return false
	case n.Kind == Alias:
		return b.holds(n.Alias, depth+1)
	}
	for _, child := range n.Content {
		if !b.holds(child, depth+1) {
			return false
		}
	}
	return true
}
