package sops_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/render/sops"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// The recipients of the files in testdata.
const (
	one = "age1zlukasdp9elcym9x5w6kdr9vd2vz378zuflnh5n0dxeynsc5gafqgqerts"
	two = "age18jwu3uq56qxukgpr5dyhp8e94skngqrvghx5segkdggy2tdkzeqqgqxxk6"
)

// samples are the files in testdata, with how sops 3.13.3 encrypted them from those in
// testdata/plain: sops --encrypt ARGS plain/FILE > FILE.
var samples = map[string][]string{
	"secret.yaml": {"--age", one, "--encrypted-regex", "^(data|stringData)$"},
	"all.yaml":    {"--age", two + "," + one},
	"only.yaml":   {"--age", one, "--mac-only-encrypted", "--encrypted-suffix", "_secret"},
	"config.json": {"--age", one},
	"app.env":     {"--age", two + "," + one},
	"blob.bin":    {"--age", one},
	"app.yaml":    {"--age", one, "--encrypted-regex", "^value$"},
	"image.yaml":  {"--age", one},
}

func data(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return text
}

func keys(t testing.TB, names ...string) sops.Keys {
	t.Helper()
	texts := map[string][]byte{}
	for _, name := range names {
		texts[name] = data(t, name)
	}
	k, err := sops.ReadKeys("Secret sops-age", texts)
	require.NoError(t, err)
	return k
}

// same compares a plaintext by what it means: comments and the order of keys may differ.
func same(t *testing.T, name string, want, got []byte) {
	t.Helper()
	switch filepath.Ext(name) {
	case ".json":
		assert.JSONEq(t, string(want), string(got), name)
	case ".yaml":
		wanted, parts := decode.Split(want), decode.Split(got)
		require.Len(t, parts, len(wanted), "%s", got)
		for i, part := range parts {
			var a, b any
			require.NoError(t, yaml.Unmarshal(wanted[i].Text, &a))
			require.NoError(t, yaml.Unmarshal(part.Text, &b), "%s", got)
			assert.Equal(t, a, b, name)
		}
	case ".env":
		assert.Equal(t, regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(want), ""), string(got), name)
	default:
		assert.Equal(t, want, got, name)
	}
}

func TestDecrypt_FilesOfSops(t *testing.T) {
	k := keys(t, "one.agekey")
	for name := range samples {
		text := data(t, name)
		require.True(t, sops.Is(name, text), name)
		got, err := k.Decrypt(name, text)
		require.Nil(t, err, name)
		assert.False(t, sops.Is(name, got.Text), name)
		same(t, name, data(t, "plain/"+name), got.Text)
	}
	got, err := keys(t, "two.agekey", "pq.agekey").Decrypt("pq.yaml", data(t, "pq.yaml"))
	require.Nil(t, err, "a post-quantum identity")
	same(t, "pq.yaml", data(t, "plain/secret.yaml"), got.Text)
	assert.Contains(t, got.Values, "correct horse battery staple")
	assert.NotContains(t, got.Values, "Secret", "it was not encrypted")
}

func TestIs_OnlyWhatSopsEncrypted(t *testing.T) {
	for name, text := range map[string]string{
		"plain.yaml": "a: b\n",
		"about.yaml": "data: {how: 'sops writes ENC[AES256_GCM,data:…]'}\n",
		"key.yaml":   "sops: {version: 1}\nnote: ENC[AES256_GCM,\n",
		"about.md":   "sops writes ENC[AES256_GCM,data:…]",
		"other.bin":  "{ not JSON, sops ENC[AES256_GCM,",
	} {
		assert.False(t, sops.Is(name, []byte(text)), name)
	}
	assert.True(t, sops.Is("deploy/.env.production", data(t, "app.env")), "a name without the ending")
	assert.True(t, sops.Is("broken.yaml", append([]byte("a: [\n"), data(t, "all.yaml")...)), "no parser may take it for plaintext")
}

func TestDecrypt_Refused(t *testing.T) {
	secret := string(data(t, "secret.yaml"))
	first, _, _ := strings.Cut(string(data(t, "all.yaml")), "\n---")
	swapped := func(text, a, b string) string {
		line := func(key string) string {
			return regexp.MustCompile(`(?m)^ +` + key + `: (ENC.*)$`).FindStringSubmatch(text)[1]
		}
		return strings.Replace(text, line(a), line(b), 1)
	}
	without := regexp.MustCompile(`(?s)    age:.*?    lastmodified`).ReplaceAllString(secret, "KEYS    lastmodified")
	for name, c := range map[string]struct {
		text   string
		reason sops.Reason
		says   string
	}{
		"unencrypted value changed": {strings.Replace(secret, "kind: Secret", "kind: ConfigMap", 1), sops.Altered, "its MAC does not match"},
		"value added":               {strings.Replace(secret, "stringData:", "extra: 1\nstringData:", 1), sops.Altered, "its MAC does not match"},
		"document removed":          {first, sops.Altered, "its MAC does not match"},
		"value moved":               {swapped(secret, "password", "quoted"), sops.Altered, "it, its key or its place was changed"},
		"value in plaintext":        {regexp.MustCompile(`password: .*`).ReplaceAllString(secret, "password: hunter2"), sops.Altered, "that cannot be decrypted: it is not encrypted"},
		"number in plaintext":       {regexp.MustCompile(`password: .*`).ReplaceAllString(secret, "password: 17"), sops.Altered, "that is not encrypted"},
		"time changed":              {strings.Replace(secret, `lastmodified: "20`, `lastmodified: "19`, 1), sops.Altered, "its MAC does not match"},
		"rule changed":              {strings.Replace(secret, "^(data|stringData)$", "^(data)$", 1), sops.Altered, "its MAC does not match"},
		"alias":                     {strings.Replace(secret, "tier: \"1\"", "tier: &a \"1\"\n        other: *a", 1), sops.Altered, "has an alias"},
		"key twice":                 {strings.Replace(secret, "stringData:", "kind: Secret\nstringData:", 1), sops.Altered, "is there twice"},
		"pgp":                       {strings.Replace(without, "KEYS", "    pgp:\n        - fp: ABC\n", 1), sops.Unsupported, "is encrypted for pgp alone"},
		"clouds":                    {strings.Replace(without, "KEYS", "    kms: [{arn: a}]\n    gcp_kms: [{resource_id: b}]\n", 1), sops.Unsupported, "is encrypted for kms, gcp_kms alone"},
		"shamir":                    {strings.Replace(without, "KEYS", "    key_groups: [{age: []}]\n", 1), sops.Unsupported, "key_groups"},
		"no keys":                   {strings.Replace(without, "KEYS", "", 1), sops.Unsupported, "names no age recipients"},
		"many recipients":           {strings.Replace(without, "KEYS", "    age: ["+strings.Repeat("{recipient: a},", 101)+"]\n", 1), sops.Unsupported, "more than 100 recipients"},
		"large data key":            {strings.Replace(without, "KEYS", "    age: [{recipient: a, enc: "+strings.Repeat("a", 17<<10)+"}]\n", 1), sops.Unsupported, "a data key of more than 16 KiB"},
		"deep":                      {strings.Replace(secret, "stringData:", "deep: "+strings.Repeat("[", 150)+strings.Repeat("]", 150)+"\nstringData:", 1), sops.Altered, "nested more than 100 deep"},
		"large":                     {secret + strings.Repeat("#\n", 1<<20), sops.Altered, "more than 1048576 bytes"},
		"comments' rule":            {strings.Replace(secret, "encrypted_regex", "encrypted_comment_regex", 1), sops.Unsupported, "encrypted_comment_regex"},
		"two rules":                 {secret + "    encrypted_suffix: x\n", sops.Unsupported, "more than one of encrypted_suffix"},
		"regular expression":        {strings.Replace(secret, "^(data|stringData)$", "(", 1), sops.Unsupported, "regular expression"},
	} {
		require.True(t, sops.Is("a.yaml", []byte(c.text)), name)
		_, err := keys(t, "one.agekey").Decrypt("a.yaml", []byte(c.text))
		require.NotNil(t, err, name)
		assert.Equal(t, c.reason, err.Reason, "%s: %s", name, err)
		assert.Contains(t, err.Message, c.says, name)
		assert.True(t, strings.HasPrefix(err.Message, "a.yaml "), err.Message)
		assert.NotContains(t, err.Error(), "hunter2", name)
	}
}

func TestDecrypt_WrongKey(t *testing.T) {
	_, err := keys(t, "two.agekey").Decrypt("deploy/secret.yaml", data(t, "secret.yaml"))
	require.NotNil(t, err)
	assert.Equal(t, sops.NoKey, err.Reason)
	assert.Equal(t, "deploy/secret.yaml cannot be decrypted with Secret sops-age: the file is encrypted for "+one+
		", and the Secret has the keys of "+two, err.Message)
	assert.Contains(t, err.Fix, "sops rotate --in-place --add-age "+two+" deploy/secret.yaml")

	hostile := bytes.ReplaceAll(data(t, "secret.yaml"), []byte(one), []byte(`"\e]0;hello"`))
	_, err = keys(t, "two.agekey").Decrypt("a.yaml", hostile)
	require.NotNil(t, err)
	assert.Contains(t, err.Message, "encrypted for a recipient of unknown form")
}

func TestReadKeys_Refused(t *testing.T) {
	for name, texts := range map[string]map[string][]byte{
		"none":   {},
		"public": {"a.agekey": []byte(one)},
		"cut":    {"a.agekey": data(t, "one.agekey")[:40]},
		"ssh":    {"a.agekey": []byte("-----BEGIN OPENSSH PRIVATE KEY-----\n")},
		"many":   {"a.agekey": bytes.Repeat(data(t, "one.agekey"), 33)},
	} {
		_, err := sops.ReadKeys("Secret sops-age", texts)
		require.Error(t, err, name)
		assert.NotRegexp(t, `AGE-SECRET-KEY-1[A-Z0-9]`, err.Error(), name)
	}
	k, err := sops.ReadKeys("", map[string][]byte{"a.agekey": []byte("# created: now\n# public key: x\n" + string(data(t, "one.agekey")) + "\n")})
	require.NoError(t, err, "as age-keygen writes it")
	_, failed := k.Decrypt("app.env", data(t, "app.env"))
	assert.Nil(t, failed)
}

// TestDecrypt_RealSops encrypts with the command itself.
func TestDecrypt_RealSops(t *testing.T) {
	suite.Release(t, "decryption of what the sops command encrypts")
	command, err := programs.Sops.Build(t.Context())
	require.NoError(t, err)
	run := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), command, args...)
		cmd.Dir = "testdata/plain"
		cmd.Env = append(os.Environ(), "SOPS_AGE_KEY_FILE=../one.agekey", "HOME="+t.TempDir())
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%v: %s", args, errs.String())
		return out
	}
	for name, args := range samples {
		encrypted := run(append(append([]string{"--encrypt"}, args...), name)...)
		got, failed := keys(t, "one.agekey").Decrypt(name, encrypted)
		require.Nil(t, failed, name)
		same(t, name, data(t, "plain/"+name), got.Text)
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, encrypted, 0o600))
		same(t, name, run("--decrypt", file), got.Text)
	}
}

func FuzzDecrypt(f *testing.F) {
	for name := range samples {
		f.Add(name, data(f, name))
	}
	k := keys(f, "one.agekey")
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		got, err := k.Decrypt(name, text)
		if err != nil {
			if err.Message == "" || err.Fix == "" {
				t.Errorf("%v has no text", err)
			}
			return
		}
		if !sops.Is(name, text) {
			t.Error("decrypted what is not encrypted")
		}
		for _, value := range got.Values {
			if strings.HasPrefix(value, "ENC[AES256_GCM,") {
				t.Error("a value is still encrypted")
			}
		}
	})
}
