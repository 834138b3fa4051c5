package sops

import (
	"bytes"
	stdjson "encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// write returns the text of a decrypted file, without its metadata and its comments.
func (f *file) write() ([]byte, *Error) {
	switch f.format {
	case dotenv:
		return writeDotenv(f.documents[0]), nil
	case binary:
		data := take(f.documents[0], "data")
		if data == nil || data.Kind != decode.Scalar {
			return nil, unsupported("has a name without the ending of YAML, JSON or dotenv, and is no binary file of sops: name it by its format")
		}
		return []byte(data.Value), nil
	}
	for _, root := range f.documents {
		if !valid(root) {
			return nil, unsupported("has a value that is not text")
		}
	}
	if f.format == json {
		var out bytes.Buffer
		if err := writeJSON(&out, f.documents[0]); err != nil {
			return nil, unsupported("has a value that JSON cannot hold")
		}
		return out.Bytes(), nil
	}
	text, err := decode.WriteNodes(f.documents)
	if err != nil {
		return nil, unsupported("has a value that YAML cannot hold")
	}
	return text, nil
}

// valid reports whether all texts are UTF-8. It removes comments, which may be encrypted.
func valid(n *decode.Node) bool {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	for _, child := range n.Content {
		if !valid(child) {
			return false
		}
	}
	return utf8.ValidString(n.Value)
}

// writeJSON writes a value with its keys in their order.
func writeJSON(out *bytes.Buffer, n *decode.Node) error {
	switch n.Kind {
	case decode.Mapping:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeText(out, n.Content[i].Value); err != nil {
				return err
			}
			out.WriteByte(':')
			if err := writeJSON(out, n.Content[i+1]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
		return nil
	case decode.Sequence:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeJSON(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	}
	switch n.ShortTag() {
	case "!!int", "!!float", "!!bool":
		if !stdjson.Valid([]byte(n.Value)) { // an infinite number
			return writeText(out, n.Value)
		}
		out.WriteString(n.Value)
		return nil
	case "!!null":
		out.WriteString("null")
		return nil
	}
	return writeText(out, n.Value)
}

func writeText(out *bytes.Buffer, text string) error {
	quoted, err := stdjson.Marshal(text)
	out.Write(quoted)
	return err
}

// writeDotenv writes lines as SOPS does.
func writeDotenv(n *decode.Node) []byte {
	var out bytes.Buffer
	for i := 0; i+1 < len(n.Content); i += 2 {
		out.WriteString(n.Content[i].Value + "=" + strings.ReplaceAll(n.Content[i+1].Value, "\n", `\n`) + "\n")
	}
	return out.Bytes()
}
