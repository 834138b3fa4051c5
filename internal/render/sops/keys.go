package sops

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// maxIdentities bounds the identities of a source.
const maxIdentities = 32

// Keys are age identities, which decrypt files.
type Keys struct {
	Source     string // where they are from, for errors
	identities []age.Identity
}

// ReadKeys reads identities: each text is a file as age-keygen writes it.
func ReadKeys(source string, texts map[string][]byte) (Keys, error) {
	k := Keys{Source: source}
	for name, text := range texts {
		found, err := age.ParseIdentities(strings.NewReader(string(text)))
		if err != nil { // the error quotes the text
			return Keys{}, fmt.Errorf("its key %s is not a file of age identities, with lines AGE-SECRET-KEY-1…, as age-keygen writes it", printable.Clip(name))
		}
		k.identities = append(k.identities, found...)
	}
	switch {
	case len(k.identities) == 0:
		return Keys{}, errors.New("it has no key with the ending .agekey: make one with age-keygen, and put its file in as age.agekey")
	case len(k.identities) > maxIdentities:
		return Keys{}, fmt.Errorf("it has more than %d age identities: name a Secret with those of this source alone", maxIdentities)
	}
	return k, nil
}

// recipients returns the public keys of the identities.
func (k Keys) recipients() (names []string) {
	for _, identity := range k.identities {
		switch identity := identity.(type) {
		case *age.X25519Identity:
			names = append(names, identity.Recipient().String())
		case *age.HybridIdentity:
			names = append(names, identity.Recipient().String())
		}
	}
	return names
}

// dataKey returns the key with which a file's values are encrypted.
func (k Keys) dataKey(m metadata) ([]byte, *Error) {
	others := strings.Join(m.others(), ", ")
	switch {
	case len(m.KeyGroups) > 0:
		return nil, unsupported("has key_groups, which share the key between several holders: only age recipients of one group are supported")
	case len(m.Age) == 0 && others != "":
		return nil, unsupported("is encrypted for %s alone: only age recipients are supported", others)
	case len(m.Age) == 0:
		return nil, unsupported("names no age recipients in its metadata")
	case len(m.Age) > maxRecipients:
		return nil, unsupported("has more than %d recipients", maxRecipients)
	}
	for _, to := range m.Age {
		if len(to.Enc) > maxDataKey {
			return nil, unsupported("has a data key of more than %d KiB", maxDataKey>>10)
		}
		opened, err := age.Decrypt(armor.NewReader(strings.NewReader(to.Enc)), k.identities...)
		if err != nil {
			continue // of another recipient
		}
		if key, err := io.ReadAll(io.LimitReader(opened, maxDataKey)); err == nil && len(key) == dataKeySize {
			return key, nil
		}
	}
	return nil, failed(NoKey,
		"put the identity of one of these recipients into the Secret, or encrypt the file for it too: sops rotate --in-place --add-age "+listed(k.recipients(), ",")+" FILE",
		"cannot be decrypted with %s: the file is encrypted for %s, and the Secret has the keys of %s",
		k.Source, listed(m.recipients(), ", "), listed(k.recipients(), ", "))
}

// recipient is how age writes a public key.
var recipient = regexp.MustCompile(`^age1[a-z0-9]+$`)

func (m metadata) recipients() (names []string) {
	for _, to := range m.Age {
		if recipient.MatchString(to.Recipient) {
			names = append(names, to.Recipient)
		} else {
			names = append(names, "a recipient of unknown form")
		}
	}
	return names
}

// maxListed bounds the recipients that an error names.
const maxListed = 10

func listed(names []string, separator string) string {
	more := ""
	if len(names) > maxListed {
		more = fmt.Sprintf(" and %d more", len(names)-maxListed)
		names = names[:maxListed]
	}
	short := make([]string, 0, len(names))
	for _, name := range names {
		short = append(short, printable.Shorten(name, 80)) // a post-quantum one has 2000 letters
	}
	return strings.Join(short, separator) + more
}
