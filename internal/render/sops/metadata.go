package sops

import (
	"regexp"
	"strings"
)

// Bounds of a file's metadata.
const (
	maxRecipients = 100
	maxDataKey    = 16 << 10 // bytes of one recipient's copy; a post-quantum one has 2 KiB
	maxRule       = 1 << 10  // bytes of a regular expression
)

// metadata is what SOPS keeps in a file, below the key sops.
type metadata struct {
	LastModified string `yaml:"lastmodified"`
	MAC          string `yaml:"mac"`
	Age          []struct {
		Recipient string `yaml:"recipient"`
		Enc       string `yaml:"enc"` // the data key, encrypted for the recipient
	} `yaml:"age"`

	UnencryptedSuffix       string `yaml:"unencrypted_suffix"`
	EncryptedSuffix         string `yaml:"encrypted_suffix"`
	UnencryptedRegex        string `yaml:"unencrypted_regex"`
	EncryptedRegex          string `yaml:"encrypted_regex"`
	UnencryptedCommentRegex string `yaml:"unencrypted_comment_regex"`
	EncryptedCommentRegex   string `yaml:"encrypted_comment_regex"`
	MACOnlyEncrypted        bool   `yaml:"mac_only_encrypted"`

	KeyGroups []any `yaml:"key_groups"`
	PGP       []any `yaml:"pgp"`
	KMS       []any `yaml:"kms"`
	GCPKMS    []any `yaml:"gcp_kms"`
	AzureKV   []any `yaml:"azure_kv"`
	HCVault   []any `yaml:"hc_vault"`
	HCKMS     []any `yaml:"hckms"`
}

// others returns the names of the types of keys beside age that a file has.
func (m metadata) others() (names []string) {
	for _, t := range []struct {
		name string
		keys []any
	}{
		{"pgp", m.PGP}, {"kms", m.KMS}, {"gcp_kms", m.GCPKMS}, {"azure_kv", m.AzureKV},
		{"hc_vault", m.HCVault}, {"hckms", m.HCKMS},
	} {
		if len(t.keys) > 0 {
			names = append(names, t.name)
		}
	}
	return names
}

// rule decides which values are encrypted: by the keys above them.
type rule struct {
	matches  func(key string) bool
	encrypts bool // values below a key that matches; otherwise all others
}

// rule returns the one that the file was encrypted with.
func (m metadata) rule() (rule, *Error) {
	if m.UnencryptedCommentRegex != "" || m.EncryptedCommentRegex != "" {
		return rule{}, unsupported("has encrypted_comment_regex or unencrypted_comment_regex, which are not supported: use encrypted_regex")
	}
	var found []rule
	for _, suffix := range []struct {
		text     string
		encrypts bool
	}{{m.UnencryptedSuffix, false}, {m.EncryptedSuffix, true}} {
		if suffix.text != "" {
			found = append(found, rule{func(key string) bool { return strings.HasSuffix(key, suffix.text) }, suffix.encrypts})
		}
	}
	for _, expression := range []struct {
		text     string
		encrypts bool
	}{{m.UnencryptedRegex, false}, {m.EncryptedRegex, true}} {
		if expression.text == "" {
			continue
		}
		re, err := regexp.Compile(expression.text)
		if err != nil || len(expression.text) > maxRule {
			return rule{}, unsupported("has a regular expression in its metadata that cannot be used")
		}
		found = append(found, rule{re.MatchString, expression.encrypts})
	}
	switch len(found) {
	case 0: // SOPS' default
		return rule{func(key string) bool { return strings.HasSuffix(key, "_unencrypted") }, false}, nil
	case 1:
		return found[0], nil
	}
	return rule{}, unsupported("has more than one of encrypted_suffix, unencrypted_suffix, encrypted_regex and unencrypted_regex in its metadata")
}
