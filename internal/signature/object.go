package signature

import (
	"bytes"
	"errors"
	"strings"
)

// How armoured signatures begin (gpg-interface.c of Git).
const (
	sshBegin  = "-----BEGIN SSH SIGNATURE-----"
	pgpBegin  = "-----BEGIN PGP SIGNATURE-----"
	x509Begin = "-----BEGIN SIGNED MESSAGE-----"
)

// formatOf returns how a signature begins; empty if it is of no known format.
func formatOf(text []byte) string {
	for _, begin := range []string{sshBegin, pgpBegin, x509Begin} {
		if bytes.HasPrefix(text, []byte(begin)) {
			return begin
		}
	}
	return ""
}

// object is what was signed, and the signature.
type object struct{ payload, signature []byte }

var (
	errTooLarge   = errors.New("is larger than 1 MiB")
	errSignatures = errors.New("has several signatures, or one for SHA-256 repositories (gpgsig-sha256)")
	errForm       = errors.New("is not in the form that Git writes")
)

// splitCommit takes the header gpgsig out of a commit: all other bytes are signed. Tags that were
// merged (mergetag) and the message may quote signatures; they are not the commit's.
func splitCommit(raw []byte) (o object, err error) {
	if len(raw) > maxObject {
		return o, errTooLarge
	}
	var payload, signature bytes.Buffer
	within, found := false, false
	for len(raw) > 0 && raw[0] != '\n' {
		line := raw[:lineEnd(raw)]
		raw = raw[len(line):]
		signed, isSignature := bytes.CutPrefix(line, []byte("gpgsig "))
		switch {
		case within && line[0] == ' ':
			signature.Write(line[1:])
		case isSignature && !found:
			within, found = true, true
			signature.Write(signed)
		case bytes.HasPrefix(line, []byte("gpgsig")):
			return o, errSignatures
		default:
			within = false
			payload.Write(line)
		}
	}
	payload.Write(raw)
	return object{payload.Bytes(), signature.Bytes()}, nil
}

// lineEnd returns where the first line ends, its newline included.
func lineEnd(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

// tagObject is an annotated tag of a commit.
type tagObject struct {
	object
	target, name string
}

// splitTag takes the signature from the end of a tag: as in Git, it begins at the last line that
// begins a signature.
func splitTag(raw []byte) (t tagObject, err error) {
	if len(raw) > maxObject {
		return t, errTooLarge
	}
	head, message, ok := bytes.Cut(raw, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) < 3 {
		return t, errForm
	}
	for i, field := range []*string{&t.target, nil, &t.name} {
		value, ok := strings.CutPrefix(lines[i], []string{"object ", "type commit", "tag "}[i])
		switch {
		case !ok || field == nil && value != "":
			return t, errForm
		case field != nil:
			*field = value
		}
	}
	for _, line := range lines[3:] {
		if strings.HasPrefix(line, "gpgsig") {
			return t, errSignatures
		}
	}
	at := len(message)
	for i := 0; i < len(message); i += lineEnd(message[i:]) {
		if formatOf(message[i:]) != "" {
			at = i
		}
	}
	end := len(raw) - len(message) + at
	t.payload, t.signature = raw[:end], raw[end:]
	return t, nil
}
