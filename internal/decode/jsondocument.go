package decode

import (
	"bytes"
	"encoding/json"
	"strconv"

	yamlnode "go.yaml.in/yaml/v3"
)

// parseJSON returns the node of a document of JSON, or nil for other documents. JSON is not quite
// YAML: a parser of YAML refuses surrogate pairs, and changes a text with U+0085.
func (p Part) parseJSON() *Node {
	text := bytes.TrimLeft(bytes.TrimPrefix(p.Text, []byte("---")), " \t\r\n")
	if !bytes.HasPrefix(text, []byte("{")) || !json.Valid(text) {
		return nil
	}
	at := len(p.Text) - len(text)
	r := jsonReader{decoder: json.NewDecoder(bytes.NewReader(text)), text: text, line: 1 + bytes.Count(p.Text[:at], []byte("\n"))}
	r.decoder.UseNumber()
	return r.next()
}

// jsonReader makes nodes of a valid text.
type jsonReader struct {
	decoder *json.Decoder
	text    []byte
	at      int64
	line    int
}

// next returns the next value or key; nil at the end of a list.
func (r *jsonReader) next() *Node {
	token, err := r.decoder.Token()
	if err != nil { // the text is valid
		return nil
	}
	end := r.decoder.InputOffset()
	r.line += bytes.Count(r.text[r.at:end], []byte("\n"))
	r.at = end
	n := &Node{Kind: yamlnode.ScalarNode, Line: r.line}
	switch token := token.(type) {
	case json.Delim:
		if token == '}' || token == ']' {
			return nil
		}
		n.Kind = Sequence
		if token == '{' {
			n.Kind = Mapping
		}
		for child := r.next(); child != nil; child = r.next() {
			n.Content = append(n.Content, child)
		}
	case string:
		n.Tag, n.Style, n.Value = "!!str", yamlnode.DoubleQuotedStyle, token
	case json.Number:
		n.Tag, n.Value = "!!float", token.String()
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			n.Tag = "!!int"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(token)
	default:
		n.Tag = "!!null"
	}
	return n
}
