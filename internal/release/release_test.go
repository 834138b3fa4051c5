package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Public halves of the keys in testdata, which the minisign program made.
const (
	plainPublic     = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2"
	encryptedPublic = "RWRsQbfKHf78jWA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQT"
	passphrase      = "correct horse"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return data
}

func plainKey(t testing.TB) SecretKey {
	t.Helper()
	key, err := ParseSecretKey(read(t, "plain.key"), "")
	require.NoError(t, err)
	return key
}

func encryptedKey(t testing.TB) SecretKey {
	t.Helper()
	key, err := ParseSecretKey(read(t, "encrypted-cheaply.key"), passphrase)
	require.NoError(t, err)
	return key
}

// trust is in the keys of a list; one of them has to sign.
func trust(t testing.TB, list string) Trust {
	t.Helper()
	keys, err := ParseKeys(list)
	require.NoError(t, err)
	return Trust{Keys: keys}
}

func TestOpen_SignedByMinisign(t *testing.T) {
	data, sig := read(t, "golden.json"), read(t, "golden.json.minisig")
	m, err := trust(t, encryptedPublic+","+plainPublic).Open(data, sig)
	require.NoError(t, err)
	assert.Equal(t, "v1.2.3", m.Version)

	f, ok := m.File(KindAgent, "linux", "amd64")
	require.True(t, ok)
	assert.Equal(t, "pipeops-agent_1.2.3_linux_amd64", f.Name)
	_, ok = m.File(KindAgent, "linux", "arm64")
	assert.False(t, ok)
	f, ok = m.File(KindManifest, "", "")
	require.True(t, ok)
	assert.Equal(t, "agent.yaml", f.Name)
	_, ok = m.Named("agent.yaml")
	assert.True(t, ok)
	_, ok = m.Named("no.yaml")
	assert.False(t, ok)
	image, ok := m.Image("pipeops/agent")
	require.True(t, ok)
	assert.Contains(t, image.Digest, "sha256:")
	_, ok = m.Image("pipeops/other")
	assert.False(t, ok)

	again, err := m.Encode()
	require.NoError(t, err)
	assert.Equal(t, string(data), string(again), "the form in which it is published")
}

func TestOpen_RefusesUntrusted(t *testing.T) {
	data, sig := read(t, "golden.json"), read(t, "golden.json.minisig")
	changed := []byte(strings.Replace(string(data), "v1.2.3", "v1.2.4", 1))
	comment := []byte(strings.Replace(string(sig), "pipeops v1.2.3", "pipeops v1.2.4", 1))
	for name, c := range map[string]struct {
		data, sig []byte
		keys, why string
	}{
		"no key":             {data, sig, "", "knows no key"},
		"another key":        {data, sig, encryptedPublic, "signed by key D5BF958D7EE252B0, trusted is 8DFCFE1DCAB7416C"},
		"changed":            {changed, sig, plainPublic, "does not fit"},
		"comment changed":    {data, comment, plainPublic, "does not fit"},
		"no signature":       {data, nil, plainPublic, "none of minisign's"},
		"a page":             {data, []byte("<html>"), plainPublic, "none of minisign's"},
		"a large signature":  {data, make([]byte, MaxSignature+1), plainPublic, "larger than"},
		"a manifest of 1 MB": {make([]byte, 1<<20), sig, plainPublic, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := trust(t, c.keys).Open(c.data, c.sig)
			require.ErrorContains(t, err, c.why)
			assert.Nil(t, m)
		})
	}
	_, err := trust(t, plainPublic).Open(changed, sig)
	require.ErrorIs(t, err, ErrUntrusted)
}

func TestOpen_RefusesInvalidManifest(t *testing.T) {
	golden, key := string(read(t, "golden.json")), plainKey(t)
	sum := strings.Repeat("0", 64)
	for field, c := range map[string]struct{ old, with string }{
		"version": {"v1.2.3", "1.2.3"},
		"commit":  {"0a1b2c3", "a commit"},
		"expires": {"2100-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
		"release.json is not the JSON of a release": {"2100-01-01T00:00:00Z", "next year"},
		"files[1].name":    {`"agent.yaml"`, `"../agent.yaml"`},
		"files[0].sha256":  {"e3b0", "E3B0"},
		"files[1].size":    {`"size": 0,` + "\n" + `      "kind": "manifest"`, `"size": -1, "kind": "manifest"`},
		"files[1].kind":    {`"kind": "manifest"`, `"kind": ""`},
		"files[0].os":      {`"linux"`, `"Linux/x"`},
		"files[0].arch":    {`"amd64"`, `"../.."`},
		"images[0].name":   {"pipeops/agent\"", "pipeops/agent:v1\\u0000\""},
		"images[0].digest": {"sha256:e3b0", "md5:e3b0"},
		"after its end":    {"\n  ]\n}", "\n  ]\n} {}"},
		"is not the JSON":  {`"files": [`, `"files": {`},
		"each file once":   {`"name": "agent.yaml"`, `"name": "pipeops-agent_1.2.3_linux_amd64"`},
		"each image once":  {`"images": [`, `"images": [{"name": "pipeops/agent", "digest": "sha256:` + sum + `"},`},
		"at most 64":       {`"images": [`, `"images": [` + strings.Repeat(`{},`, 64)},
		"1 to 512":         {`"files": [`, `"files": [` + strings.Repeat(`{},`, 512)},
	} {
		t.Run(field, func(t *testing.T) {
			require.Contains(t, golden, c.old)
			data := []byte(strings.Replace(golden, c.old, c.with, 1))
			_, err := trust(t, plainPublic).Open(data, key.Sign(data, ""))
			require.ErrorContains(t, err, field)
		})
	}
}

// TestTrust_KeyCountsOnce has the file of the signatures hold any of them.
func TestTrust_KeyCountsOnce(t *testing.T) {
	data := read(t, "golden.json")
	first, second := string(plainKey(t).Sign(data, "")), string(encryptedKey(t).Sign(data, ""))
	again := string(plainKey(t).Sign(data, "another comment"))
	stale := string(encryptedKey(t).Sign([]byte("what it was before"), ""))
	const third = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3" // of minisign's own releases
	for name, c := range map[string]struct{ sig, keys, why string }{
		"two of two":        {first + second, plainPublic + "," + encryptedPublic, ""},
		"in any order":      {second + first, plainPublic + "," + encryptedPublic, ""},
		"two of three":      {first + second, third + "," + plainPublic + "," + encryptedPublic, ""},
		"lines of Windows":  {strings.ReplaceAll(first+second, "\n", "\r\n"), plainPublic + "," + encryptedPublic, ""},
		"one of two":        {first, plainPublic + "," + encryptedPublic, "1 of the 2 signatures that are needed: it was signed by key D5BF958D7EE252B0, trusted is 8DFCFE1DCAB7416C, D5BF958D7EE252B0"},
		"one twice":         {first + again, plainPublic + "," + encryptedPublic, "1 of the 2 signatures"},
		"a stranger's":      {first + second, plainPublic + "," + third, "1 of the 2 signatures"},
		"one of old":        {first + stale, plainPublic + "," + encryptedPublic, "the signature of key 8DFCFE1DCAB7416C does not fit"},
		"one and a half":    {first + second[:len(second)/2], plainPublic + "," + encryptedPublic, "signature 2 is none of minisign's"},
		"a line in between": {first + "\n" + second, plainPublic + "," + encryptedPublic, "signature 2 is none of minisign's"},
	} {
		t.Run(name, func(t *testing.T) {
			two := trust(t, c.keys)
			two.Signatures = 2
			_, err := two.Open(data, []byte(c.sig))
			if c.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrUntrusted)
			require.ErrorContains(t, err, c.why)
		})
	}
	require.NoError(t, trust(t, plainPublic).Verify(data, []byte(second+first)), "whose keys are unknown does no harm")
	signers, err := Signers([]byte(first + second))
	require.NoError(t, err)
	assert.Equal(t, []uint64{plainKey(t).Public().ID(), encryptedKey(t).Public().ID()}, signers)
}

// A release to come may say more than this one understands.
func TestDecode_IgnoresUnknownFields(t *testing.T) {
	key := plainKey(t)
	data := []byte(strings.Replace(string(read(t, "golden.json")), `"version"`, `"since": "v1.0.0", "version"`, 1))
	m, err := trust(t, plainPublic).Open(data, key.Sign(data, ""))
	require.NoError(t, err)
	assert.Equal(t, "v1.2.3", m.Version)
}

func TestCheckExpiry(t *testing.T) {
	m, err := Decode(read(t, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, m.CheckExpiry(m.Expires.Add(-time.Second)))
	err = m.CheckExpiry(m.Expires)
	require.ErrorContains(t, err, "v1.2.3 expired at 2100-01-01T00:00:00Z (fix: ")
}

func TestCompareVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.2.3": true, "v0.0.0-g0a1b2c3-dirty": true, "v1.2.3-rc.1": true,
		"1.2.3": false, "v1.2": false, "v01.2.3": false, "v1.2.3+k3s1": false, "v1.2.3-": false, "dev": false, "": false,
		"v1.2.3\n": false, "v1.2.3/..": false, "v1.2.3-" + strings.Repeat("x", 60): false,
	} {
		assert.Equal(t, want, ValidVersion(version), version)
	}
}

func TestParseTrust(t *testing.T) {
	assert.Empty(t, trust(t, "").Keys)
	assert.Len(t, trust(t, " "+plainPublic+", "+encryptedPublic+",").Keys, 2)
	_, err := ParseKeys(plainPublic + ",RWQ")
	require.ErrorContains(t, err, `release key "RWQ"`)
	_, err = ParseKeys(plainPublic + "," + plainPublic)
	require.ErrorContains(t, err, "want: each key once")
}

func TestParseSecretKey(t *testing.T) {
	assert.Equal(t, plainPublic, plainKey(t).Public().String())
	_, err := ParseSecretKey([]byte("no key"), "")
	require.ErrorContains(t, err, "no key file")
	_, err = ParseSecretKey(make([]byte, MaxSignature+1), "")
	require.ErrorContains(t, err, "no key file")
	_, err = ParseSecretKey(read(t, "encrypted.key"), "")
	require.ErrorIs(t, err, ErrPassphrase)
}

func TestParseSecretKey_Encrypted(t *testing.T) {
	// The very key of encrypted.key: minisign's own scrypt takes 1 GiB and seconds each time.
	file := read(t, "encrypted-cheaply.key")
	key, err := ParseSecretKey(file, passphrase)
	require.NoError(t, err)
	signsAsEncrypted(t, key)
	_, err = ParseSecretKey(file, "wrong horse")
	require.ErrorIs(t, err, ErrPassphrase)
	assert.NotContains(t, err.Error(), "wrong horse")
}

func signsAsEncrypted(t *testing.T, key SecretKey) {
	t.Helper()
	assert.Equal(t, encryptedPublic, key.Public().String())
	data := read(t, "golden.json")
	_, err := trust(t, encryptedPublic).Open(data, key.Sign(data, "v1.2.3"))
	require.NoError(t, err)
}

// What we sign is checked by the program that operators have.
func TestSign_MinisignVerifies(t *testing.T) {
	program, err := exec.LookPath("minisign")
	if err != nil {
		t.Skip("minisign is not installed (apt-get install minisign)")
	}
	data, file := read(t, "golden.json"), filepath.Join(t.TempDir(), ManifestName)
	require.NoError(t, os.WriteFile(file, data, 0o600))
	require.NoError(t, os.WriteFile(file+".minisig", plainKey(t).Sign(data, "pipeops v1.2.3"), 0o600))
	said, err := exec.CommandContext(t.Context(), program, "-V", "-H", "-P", plainPublic, "-m", file).CombinedOutput()
	require.NoError(t, err, "%s", said)
	assert.Contains(t, string(said), "pipeops v1.2.3")
	require.NoError(t, os.WriteFile(file, append(data, ' '), 0o600))
	said, err = exec.CommandContext(t.Context(), program, "-V", "-P", plainPublic, "-m", file).CombinedOutput()
	require.Error(t, err, "%s", said)
}

func FuzzOpen(f *testing.F) {
	data, sig, trusted := read(f, "golden.json"), read(f, "golden.json.minisig"), trust(f, plainPublic)
	f.Add(data, sig)
	f.Add(data, plainKey(f).Sign(data, "another comment"))
	f.Add([]byte("{}"), sig)
	f.Add(data, append(plainKey(f).Sign(data, ""), encryptedKey(f).Sign(data, "")...))
	f.Fuzz(func(t *testing.T, other, sig []byte) {
		if m, err := trusted.Open(other, sig); err == nil && string(other) != string(data) {
			t.Fatalf("opened what nobody signed: %+v", m)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(read(f, "golden.json"))
	f.Add([]byte(`{"version":"v1.2.3","commit":"x","files":[{"name":"a"}],"images":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			return
		}
		text, err := m.Encode()
		if err != nil {
			t.Skip("larger, indented, than is read") // what it says was valid
		}
		again, err := Decode(text)
		require.NoError(t, err)
		assert.Equal(t, m, again)
	})
}

func FuzzParseSecretKey(f *testing.F) {
	f.Add(read(f, "plain.key"))
	f.Fuzz(func(t *testing.T, file []byte) {
		key, err := ParseSecretKey(file, "") // an encrypted one is refused before it costs memory
		if err == nil {
			_ = key.Public().String()
		}
	})
}
