package decode

import (
	"fmt"
	"strconv"

	yamlnode "go.yaml.in/yaml/v3"
)

// take counts a node, each time an alias stands for it.
func (b *Budget) take(p Part, n *Node, depth int) error {
	b.values++
	b.bytes += len(n.Value)
	switch {
	case b.values > b.limits.Values || b.bytes > b.limits.Expanded:
		return b.limits.tooExpanded(p.Line + n.Line - 1)
	case depth > b.limits.Depth:
		return b.limits.tooDeep(p.Line + n.Line - 1)
	}
	return nil
}

// value returns what a node stands for. Nothing is built beyond the budget.
func (b *Budget) value(p Part, n *Node, depth int) (any, error) {
	if err := b.take(p, n, depth); err != nil {
		return nil, err
	}
	switch n.Kind {
	case Alias:
		return b.value(p, n.Alias, depth+1)
	case Mapping:
		return b.mapping(p, n, depth)
	case Sequence:
		list := make([]any, len(n.Content))
		for i, child := range n.Content {
			var err error
			if list[i], err = b.value(p, child, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return p.scalar(n)
}

// mapping returns a mapping with what it merges. Its own keys win, wherever the merge key is
// (https://yaml.org/type/merge.html).
func (b *Budget) mapping(p Part, n *Node, depth int) (map[string]any, error) {
	out := make(map[string]any, len(n.Content)/2)
	seen := make(map[string]*Node, len(n.Content)/2)
	var merged []*Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name, err := p.key(key)
		if err != nil {
			return nil, err
		}
		if before := seen[name]; before != nil {
			return nil, p.twice(name, key, before)
		}
		seen[name] = key
		b.bytes += len(name)
		if key.ShortTag() == mergeTag {
			merged = mergedBy(value)
			continue
		}
		if out[name], err = b.value(p, value, depth+1); err != nil {
			return nil, err
		}
	}
	return out, b.merge(p, out, merged, depth+1)
}

const mergeTag = "!!merge"

// mergedBy returns the mappings that the value of a merge key stands for.
func mergedBy(n *Node) []*Node {
	if n.Kind == Sequence {
		return n.Content
	}
	return []*Node{n}
}

// merge adds the keys that a mapping does not have. Of two mappings, the first one wins.
func (b *Budget) merge(p Part, into map[string]any, mappings []*Node, depth int) error {
	for _, n := range mappings {
		value, err := b.value(p, n, depth)
		if err != nil {
			return err
		}
		mapping, ok := value.(map[string]any)
		if !ok {
			return p.fail(n.Line, "the merge key << takes a mapping, or a list of mappings")
		}
		for key, value := range mapping {
			if _, has := into[key]; !has {
				into[key] = value
			}
		}
	}
	return nil
}

// key returns a key as text: JSON has no other keys.
func (p Part) key(n *Node) (string, error) {
	if n.Kind == Alias {
		n = n.Alias
	}
	if n.Kind != yamlnode.ScalarNode {
		return "", p.fail(n.Line, "a key has to be a text")
	}
	value, err := p.scalar(n)
	if err != nil {
		return "", err
	}
	switch value := value.(type) {
	case nil:
		return "", p.fail(n.Line, "a key has to be a text: put it in quotes")
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 32), nil // as sigs.k8s.io/yaml has it
	}
	return fmt.Sprint(value), nil
}

func (p Part) twice(name string, key, before *Node) error {
	line := p.Line + before.Line - 1
	if key.Value != before.Value {
		return p.fail(key.Line, "the key %.100s is there twice, first in line %d as %.100s: without quotes both mean %.100s; put them in quotes",
			key.Value, line, before.Value, name)
	}
	return p.fail(key.Line, "the key %.100q is there twice, first in line %d", name, line)
}

// words are YAML 1.1's further words for true and false, which Kubernetes takes.
var words = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

// scalar returns a scalar as Kubernetes reads YAML, which is YAML 1.1 without dates.
func (p Part) scalar(n *Node) (any, error) {
	tag := n.ShortTag()
	if word, ok := words[n.Value]; ok && (tag == "!!bool" || n.Style == 0) {
		return word, nil
	}
	switch tag {
	case "!!str", "!!timestamp", mergeTag:
		return n.Value, nil
	}
	var value any
	if err := n.Decode(&value); err != nil { // it quotes what it reads, which may be secret
		return nil, p.fail(n.Line, "the value does not fit its tag %.40s", tag)
	}
	return value, nil
}
