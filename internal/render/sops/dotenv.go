package sops

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// flatPrefix begins the names of metadata in a file that has no levels.
const flatPrefix = "sops_"

// flatAge is a field of a recipient. The first one has the number 0.
var flatAge = regexp.MustCompile(`^age__list_([0-9]{1,3})__map_(recipient|enc)$`)

// dotenv parses lines NAME=VALUE as SOPS does.
func (f *file) dotenv(text []byte) error {
	if err := limits.Scan(text); err != nil {
		return err
	}
	root, flat := &decode.Node{Kind: decode.Mapping}, map[string]string{}
	number := 0
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		number++
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(string(line), "=")
		if !ok {
			return fmt.Errorf("line %d is not NAME=VALUE", number)
		}
		value = strings.ReplaceAll(value, `\n`, "\n")
		if key, meta := strings.CutPrefix(name, flatPrefix); meta {
			flat[key] = value
			continue
		}
		root.Content = append(root.Content, scalar(name, number), scalar(value, number))
	}
	f.documents = []*decode.Node{root}
	f.meta = flatMetadata(flat)
	return nil
}

func scalar(text string, line int) *decode.Node {
	return &decode.Node{Kind: decode.Scalar, Tag: "!!str", Value: text, Line: line, Style: decode.DoubleQuoted}
}

// flatMetadata returns the metadata of a file that has no levels.
func flatMetadata(flat map[string]string) (m metadata) {
	for field, at := range map[string]*string{
		"lastmodified": &m.LastModified, "mac": &m.MAC,
		"unencrypted_suffix": &m.UnencryptedSuffix, "encrypted_suffix": &m.EncryptedSuffix,
		"unencrypted_regex": &m.UnencryptedRegex, "encrypted_regex": &m.EncryptedRegex,
		"unencrypted_comment_regex": &m.UnencryptedCommentRegex, "encrypted_comment_regex": &m.EncryptedCommentRegex,
	} {
		*at = flat[field]
	}
	m.MACOnlyEncrypted, _ = strconv.ParseBool(flat["mac_only_encrypted"])
	for name, value := range flat {
		if field := flatAge.FindStringSubmatch(name); field != nil {
			m.setAge(field[1], field[2], value)
			continue
		}
		kind, _, list := strings.Cut(name, "__list_")
		if !list {
			continue
		}
		if at := m.list(kind); at != nil {
			*at = append(*at, value)
		}
	}
	return m
}

func (m *metadata) setAge(number, field, value string) {
	n, _ := strconv.Atoi(number)
	for len(m.Age) <= n {
		m.Age = append(m.Age, struct {
			Recipient string `yaml:"recipient"`
			Enc       string `yaml:"enc"`
		}{})
	}
	if field == "enc" {
		m.Age[n].Enc = value
	} else {
		m.Age[n].Recipient = value
	}
}

// list returns where keys of another type than age are kept.
func (m *metadata) list(kind string) *[]any {
	return map[string]*[]any{
		"key_groups": &m.KeyGroups, "pgp": &m.PGP, "kms": &m.KMS, "gcp_kms": &m.GCPKMS,
		"azure_kv": &m.AzureKV, "hc_vault": &m.HCVault, "hckms": &m.HCKMS,
	}[kind]
}
