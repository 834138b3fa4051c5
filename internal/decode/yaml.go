package decode

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Document returns the one document of a text; nil where the text has comments alone. A key that
// is there twice is an error.
func (l Limits) Document(text []byte) (*Document, error) {
	if err := l.Scan(text); err != nil {
		return nil, err
	}
	var found *Document
	budget := l.Budget()
	for _, part := range Split(text) {
		document, err := budget.Document(part)
		if err != nil {
			return nil, err
		}
		if document != nil && found != nil {
			return nil, &Error{Line: document.Root.Line + part.Line - 1, Message: "a second document begins: give one"}
		}
		if document != nil {
			found = document
		}
	}
	return found, nil
}

// FromYAML turns one document of YAML, or of JSON, into JSON, as Kubernetes reads YAML. A text
// without a document is null.
func (l Limits) FromYAML(text []byte) ([]byte, error) {
	document, err := l.Document(text)
	if err != nil {
		return nil, err
	}
	if document == nil {
		return []byte("null"), nil
	}
	return document.JSON()
}

// YAML decodes one document into a value, as Document.Into does. A text without a document leaves
// the value as it is.
func (l Limits) YAML(text []byte, into any) error {
	document, err := l.Document(text)
	if err != nil || document == nil {
		return err
	}
	return document.Into(into)
}

// LooseYAML is like YAML for documents with more fields than requested.
func (l Limits) LooseYAML(text []byte, into any) error {
	doc, err := l.FromYAML(text)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(doc, into)
}

// Strict decodes the output of FromYAML, and refuses unknown fields.
func Strict(doc []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(doc, into)
	return errors.Join(append(strict, err)...)
}

// ToYAML writes a value as YAML, by its JSON.
func ToYAML(v any) ([]byte, error) { return yaml.Marshal(v) }

// JSONToYAML writes JSON of our own as YAML, and keeps whole numbers whole.
func JSONToYAML(text []byte) ([]byte, error) { return yaml.JSONToYAML(text) }

// Scan holds a text to the limits that show without parsing it, and allocates nothing for it.
func (l Limits) Scan(text []byte) error {
	switch {
	case len(text) > l.Bytes:
		return l.tooLong()
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return errUTF8
	case Values(text) > l.Values:
		return l.tooMany()
	case aliases(text) > l.Aliases:
		return l.tooManyAliases()
	}
	return nil
}

// errUTF8 is about a text in another encoding. A parser of YAML reads UTF-16 too, of which the
// limits know nothing.
var errUTF8 error = &Error{Message: "the text is not UTF-8; it may be UTF-16, as Windows PowerShell writes it: save it as UTF-8"}

// UTF16 reports whether a parser of YAML takes a text for UTF-16.
func UTF16(text []byte) bool {
	return bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff"))
}

// Values returns an upper bound of how many values a parser can make of a text: each entry of YAML
// begins a line, or follows one of these.
func Values(text []byte) int {
	n := 1
	for _, sign := range []string{"\n", "\r", ",", "[", "{", "- ", "-\t", "? ", "\u0085", "\u2028", "\u2029"} {
		n += bytes.Count(text, []byte(sign))
	}
	return n
}

// aliases returns how many aliases a text seems to have: what may stand before an alias, a star,
// and what a name begins with. It bounds what a parser makes of them; Budget counts the real ones.
func aliases(text []byte) (n int) {
	for at := 0; ; at++ {
		next := bytes.IndexByte(text[at:], '*')
		if next < 0 {
			return n
		}
		at += next
		begins := at == 0 || strings.IndexByte(" \t\r\n,[{:-?\x85\xa8\xa9", text[at-1]) >= 0
		if begins && at+1 < len(text) && alphanumeric(text[at+1]) {
			n++
		}
	}
}

// starred reports whether a text may have an alias at all, wherever it stands.
func starred(text []byte) bool {
	for at, b := range text {
		if b == '*' && at+1 < len(text) && alphanumeric(text[at+1]) {
			return true
		}
	}
	return false
}

func alphanumeric(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b == '_' || b == '-'
}

// Part is the text of one document of a stream.
type Part struct {
	Text []byte
	Line int // its first, from 1
}

// Split cuts a stream where a line is a document marker. In YAML no text can have such
// a line within it. A byte order mark may begin each document (YAML 1.2.2, 9.1.1).
func Split(text []byte) (parts []Part) {
	text = withoutMark(text)
	start, line, first := 0, 1, 1
	for at := 0; at < len(text); {
		end := len(text)
		if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		if at > start && marker(text[at:end]) {
			parts = append(parts, Part{text[start:at], first})
			start, first = at, line
		}
		at = end
		line++
		if rest := withoutMark(text[at:]); len(rest) < len(text)-at && len(bytes.TrimSpace(text[start:at])) == len("---") {
			at = len(text) - len(rest)
			start, first = at, line
		}
	}
	return append(parts, Part{text[start:], first})
}

func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

func marker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// ServerJSON converts one YAML document to JSON as Kubernetes' API server does. A field that is
// there twice is an error, and so is a second document, which the API server does not read.
func (l Limits) ServerJSON(text []byte) ([]byte, error) {
	if err := l.PlainAliases(text); err != nil {
		return nil, err
	}
	if len(Split(text)) != 1 {
		return nil, errors.New("it has several documents, of which only one is read")
	}
	return yaml.YAMLToJSONStrict(text)
}
