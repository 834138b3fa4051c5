// Package sops decrypts files that SOPS has encrypted for age recipients: YAML, JSON, dotenv and
// binary files. It encrypts nothing, and knows no other keys than age's.
//
// It is not SOPS' own code, whose core links the SDKs of all clouds (docs/adr/0084-sops.md). The
// tests hold it against the real command. It runs in the process that renders (see package render).
package sops

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// Reason is the stable name of a failure.
type Reason string

// The reasons.
const (
	// Encrypted is of a file in a source that decrypts nothing.
	Encrypted Reason = "file_encrypted"
	NoKey     Reason = "decryption_key_missing"
	Altered   Reason = "decryption_failed"
	// Unsupported is a type of key, or a form of the file, that is not decrypted.
	Unsupported Reason = "decryption_not_supported"
)

// Error is why a file is not decrypted, with a fix. It quotes no value of the file.
type Error struct {
	Reason       Reason
	Message, Fix string
}

func (e *Error) Error() string { return e.Message + " (fix: " + e.Fix + ")" }

func failed(reason Reason, fix, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Fix: fix}
}

const (
	fixAltered = "change encrypted files with sops alone (sops edit FILE), and push the file again"
	fixForm    = "encrypt it again with sops 3.7 or later, for age recipients: sops encrypt --age RECIPIENT --in-place FILE"
)

func altered(format string, args ...any) *Error {
	return failed(Altered, fixAltered, format, args...)
}

func unsupported(format string, args ...any) *Error {
	return failed(Unsupported, fixForm, format, args...)
}

// limits of an encrypted file. A repository's files have at most 1 MiB; ciphertext is longer than
// the plaintext, so what comes of a file is smaller.
var limits = decode.Text

// format is how a file is written.
type format int

const (
	yaml format = iota
	json
	dotenv
	binary // in JSON
)

// mark is in each encrypted file: its MAC is a value of that form.
var mark = []byte("ENC[AES256_GCM,")

// MayBe reports whether a file may be encrypted. It costs no more than a search for a word.
func MayBe(text []byte) bool {
	return bytes.Contains(text, mark) && bytes.Contains(text, []byte("sops"))
}

// Is reports whether a file is encrypted.
func Is(name string, text []byte) bool { return read(name, text) != nil }

// file is an encrypted file.
type file struct {
	format    format
	documents []*decode.Node // mappings
	meta      metadata
	failed    error // why it cannot be parsed
}

// read parses a file as SOPS does: by the ending of its name. It returns nil for a file that is not
// encrypted.
func read(name string, text []byte) *file {
	if !MayBe(text) {
		return nil
	}
	is := binary
	switch ext := path.Ext(name); {
	case ext == ".yaml" || ext == ".yml":
		is = yaml
	case ext == ".json":
		is = json
	case ext == ".env" || bytes.Contains(text, []byte("\n"+flatPrefix+"mac=")):
		is = dotenv
	case !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return nil
	}
	f := &file{format: is}
	if is == dotenv {
		f.failed = f.dotenv(text)
	} else {
		f.failed = f.tree(text)
	}
	switch {
	case f.failed != nil && is != binary: // no parser of others takes it for plaintext
		return f
	case f.failed != nil || !strings.HasPrefix(f.meta.MAC, string(mark)):
		return nil
	}
	return f
}

// tree parses YAML or JSON.
func (f *file) tree(text []byte) error {
	if err := limits.Scan(text); err != nil {
		return err
	}
	budget := limits.Budget()
	for _, part := range decode.Split(text) {
		document, err := budget.Document(part)
		switch {
		case err != nil:
			return err
		case document == nil:
			continue
		case document.Root.Kind != decode.Mapping:
			return errors.New("a document is no mapping")
		}
		if meta := take(document.Root, "sops"); meta != nil && f.meta.MAC == "" && meta.Decode(&f.meta) != nil {
			return errors.New("the key sops has another form than sops gives it")
		}
		f.documents = append(f.documents, document.Root)
	}
	return nil
}

// take removes a key of a mapping, and returns its value; nil if it has none.
func take(n *decode.Node, key string) *decode.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			value := n.Content[i+1]
			n.Content = append(n.Content[:i:i], n.Content[i+2:]...)
			return value
		}
	}
	return nil
}

// Plaintext is a decrypted file.
type Plaintext struct {
	Text []byte
	// Values are what was encrypted in it.
	Values []string
}

// Decrypt returns the plaintext of a file, for which Is is true.
func (k Keys) Decrypt(name string, text []byte) (Plaintext, *Error) {
	var out Plaintext
	err := unsupported("is not encrypted with sops")
	if f := read(name, text); f != nil && f.failed != nil {
		err = altered("cannot be parsed: %v", f.failed)
	} else if f != nil {
		out, err = k.decrypt(f)
	}
	if err != nil {
		err.Message = name + " " + err.Message
		err.Fix = strings.ReplaceAll(err.Fix, "FILE", name)
	}
	return out, err
}

func (k Keys) decrypt(f *file) (out Plaintext, failed *Error) {
	key, failed := k.dataKey(f.meta)
	if failed != nil {
		return out, failed
	}
	d, failed := newDecryption(key, f.meta)
	if failed != nil {
		return out, failed
	}
	for _, root := range f.documents {
		if failed := d.mapping(root, "", false); failed != nil {
			return out, failed
		}
	}
	if failed := d.verify(f.meta); failed != nil {
		return out, failed
	}
	out.Values = d.values
	out.Text, failed = f.write()
	return out, failed
}
