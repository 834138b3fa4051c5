package sops

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

const (
	dataKeySize = 32
	nonceSize   = 32
	tagSize     = 16
)

// onlyEncrypted begins the MAC of a file whose MAC is over encrypted values alone
// (MACOnlyEncryptedInitialization of SOPS).
const onlyEncrypted = "8a3fd2ad54ce66527b1034f3d147be0b0b975b3bf44f72c6fdadec8176f27d69"

// decryption replaces the values of a file by their plaintext, and computes the MAC of all.
type decryption struct {
	cipher cipher.AEAD
	rule   rule
	only   bool // the MAC is over encrypted values alone
	mac    hash.Hash
	values []string
}

func newDecryption(key []byte, m metadata) (*decryption, *Error) {
	r, failed := m.rule()
	if failed != nil {
		return nil, failed
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, altered("has a data key that is none of AES-256")
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, nonceSize)
	if err != nil {
		return nil, unsupported("cannot be decrypted: %v", err)
	}
	d := &decryption{cipher: gcm, rule: r, only: m.MACOnlyEncrypted, mac: sha512.New()}
	if d.only {
		begin, _ := hex.DecodeString(onlyEncrypted)
		d.mac.Write(begin)
	}
	return d, nil
}

// mapping decrypts the values of a mapping. at is the path to it, as SOPS authenticates it, and
// matched whether one of its keys matches the file's rule.
func (d *decryption) mapping(n *decode.Node, at string, matched bool) *Error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == decode.Alias || key.ShortTag() != "!!str" {
			return altered("has a key in line %d that is no text", key.Line)
		}
		err := d.value(n.Content[i+1], at+key.Value+":", matched || d.rule.matches(key.Value))
		if err != nil {
			return err
		}
		if n.Content[i+1].Kind == 0 {
			return altered("has a comment as the value in line %d", n.Content[i+1].Line)
		}
	}
	return nil
}

// value decrypts a value, and all that is below it. The kind of a value that was a comment is 0.
func (d *decryption) value(n *decode.Node, at string, matched bool) *Error {
	switch n.Kind {
	case decode.Alias:
		return altered("has an alias (*NAME) in line %d, which sops writes out", n.Line)
	case decode.Mapping:
		return d.mapping(n, at, matched)
	case decode.Sequence:
		kept := n.Content[:0]
		for _, item := range n.Content {
			if err := d.value(item, at, matched); err != nil {
				return err
			}
			if item.Kind != 0 {
				kept = append(kept, item)
			}
		}
		n.Content = kept
		return nil
	}
	if n.ShortTag() == "!!null" {
		return nil
	}
	if matched == d.rule.encrypts {
		return d.encrypted(n, at)
	}
	text, ok := canonical(n)
	if !ok {
		return altered("has a value in line %d that sops does not write", n.Line)
	}
	if !d.only {
		d.mac.Write([]byte(text))
	}
	return nil
}

// canonical returns a value as the MAC is computed of it (ToBytes of SOPS).
func canonical(n *decode.Node) (string, bool) {
	var value any
	if n.ShortTag() == "!!str" {
		return n.Value, true
	}
	if err := n.Decode(&value); err != nil {
		return "", false
	}
	switch value := value.(type) {
	case string:
		return value, true
	case int:
		return strconv.Itoa(value), true
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), true
	case bool:
		return titled(value), true
	case time.Time:
		text, err := value.MarshalText()
		return string(text), err == nil
	}
	return "", false
}

func titled(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// encrypted decrypts a scalar.
func (d *decryption) encrypted(n *decode.Node, at string) *Error {
	if n.ShortTag() != "!!str" {
		return altered("has a value in line %d that is not encrypted", n.Line)
	}
	if n.Value == "" {
		return nil
	}
	text, is, err := d.open(n.Value, at)
	if err != nil {
		return altered("has a value in line %d that cannot be decrypted: %v", n.Line, err)
	}
	if is == "comment" {
		n.Kind = 0
		return nil
	}
	d.values = append(d.values, text)
	if text, err = put(n, text, is); err != nil {
		return altered("has a value in line %d that cannot be used: %v", n.Line, err)
	}
	d.mac.Write([]byte(text))
	return nil
}

// put sets the value of a scalar. It returns the value as the MAC is computed of it.
func put(n *decode.Node, text, is string) (canonical string, err error) {
	*n = decode.Node{Kind: decode.Scalar, Line: n.Line, Value: text, Style: decode.DoubleQuoted, Tag: "!!str"}
	switch is {
	case "str", "bytes":
		return text, nil
	case "int":
		number, err := strconv.Atoi(text)
		n.Value, n.Tag, n.Style = strconv.Itoa(number), "!!int", 0
		return n.Value, withoutText(err)
	case "float":
		number, err := strconv.ParseFloat(text, 64)
		n.Value, n.Tag, n.Style = strconv.FormatFloat(number, 'f', -1, 64), "", 0 // it may be a whole number
		return n.Value, withoutText(err)
	case "bool":
		value, err := strconv.ParseBool(text)
		n.Value, n.Tag, n.Style = strconv.FormatBool(value), "!!bool", 0
		return titled(value), withoutText(err)
	case "time":
		value, err := time.Parse(time.RFC3339, text)
		n.Value, n.Tag, n.Style = text, "!!timestamp", 0
		again, _ := value.MarshalText()
		return string(again), withoutText(err)
	}
	return "", fmt.Errorf("its type %.20q is not known", is)
}

// withoutText replaces an error that quotes what it is about.
func withoutText(err error) error {
	if err == nil {
		return nil
	}
	return errors.New("its text does not fit its type")
}

// open decrypts ENC[AES256_GCM,data:…,iv:…,tag:…,type:…], which is bound to its path.
func (d *decryption) open(value, at string) (text, is string, err error) {
	inner, ok := strings.CutPrefix(value, string(mark))
	inner, closed := strings.CutSuffix(inner, "]")
	fields := strings.Split(inner, ",")
	if !ok || !closed || len(fields) != 4 {
		return "", "", errors.New("it is not encrypted")
	}
	var raw [3][]byte
	for i, name := range []string{"data:", "iv:", "tag:"} {
		encoded, ok := strings.CutPrefix(fields[i], name)
		if raw[i], err = base64.StdEncoding.DecodeString(encoded); !ok || err != nil {
			return "", "", errors.New("its form is not that of sops")
		}
	}
	is, ok = strings.CutPrefix(fields[3], "type:")
	data, nonce, tag := raw[0], raw[1], raw[2]
	if !ok || len(nonce) != nonceSize || len(tag) != tagSize {
		return "", "", errors.New("its form is not that of sops")
	}
	opened, err := d.cipher.Open(nil, nonce, append(data, tag...), []byte(at))
	if err != nil {
		return "", "", errors.New("it, its key or its place was changed")
	}
	return string(opened), is, nil
}

// verify compares the MAC of the file with that of its values.
func (d *decryption) verify(m metadata) *Error {
	at, err := time.Parse(time.RFC3339, m.LastModified)
	if err != nil {
		return altered("has no time of its last change in its metadata")
	}
	want, _, err := d.open(m.MAC, at.Format(time.RFC3339))
	if err != nil || want != strings.ToUpper(hex.EncodeToString(d.mac.Sum(nil))) {
		return altered("was changed after sops encrypted it: its MAC does not match")
	}
	return nil
}
