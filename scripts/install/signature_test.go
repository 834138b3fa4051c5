package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

const (
	trusted = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2"
	another = "RWRsQbfKHf78jWA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQT"
)

// bash runs commands with parts of install.sh at hand.
func bash(t *testing.T, commands string, env ...string) (said string, code int) {
	t.Helper()
	script := "set -Eeuo pipefail\n"
	for _, part := range []string{"settings", "preset", "log", "facts", "decide", "state", "download", "pinned", "signature", "k3s", "kube", "await", "server", "command_upgrade", "command_upgrade_kubernetes"} {
		text, err := files.ReadFile(part + ".sh")
		require.NoError(t, err)
		script += string(text)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script+`
declare -A facts=([PACKAGE_MANAGER]=apt-get)
command=test
lock_release() { return 0; }
settings_load
traps_set
tmp_open
`+commands)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), string(out))
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// bashOK is bash for commands that succeed.
func bashOK(t *testing.T, commands string, env ...string) (said string) {
	t.Helper()
	said, code := bash(t, commands, env...)
	require.Zero(t, code, said)
	return said
}

func testKey(t *testing.T, name, passphrase string) release.SecretKey {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("../../internal/release/testdata", name))
	require.NoError(t, err)
	key, err := release.ParseSecretKey(file, passphrase)
	require.NoError(t, err)
	return key
}

// installedTools are the programs that check signatures.
func installedTools(t *testing.T) (tools []string) {
	t.Helper()
	for _, tool := range []string{"minisign", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("NOT CHECKED with %s: it is not installed", tool)
			continue
		}
		tools = append(tools, tool)
	}
	return tools
}

// TestSignatures checks what Go signs with the programs that machines have.
func TestSignatures(t *testing.T) {
	const list, comment, both = "0123  agent.yaml\n", "pipeops v1.2.3 SHA256SUMS", trusted + "," + another
	key, second := testKey(t, "plain.key", ""), testKey(t, "encrypted-cheaply.key", "correct horse")
	sign := func(comment string) string { return string(key.Sign([]byte(list), comment)) }
	good, two := sign(comment), string(second.Sign([]byte(list), comment))
	for name, c := range map[string]struct {
		signatures, keys, needed string
		code                     int
		says                     string
	}{
		"right":                {good, trusted, "1", 0, "signed by " + trusted},
		"the second key":       {good, another + "," + trusted, "1", 0, "signed by " + trusted},
		"another key":          {good, another, "1", 6, ""},
		"no key":               {good, "RWQ", "1", 6, ""},
		"changed":              {string(key.Sign([]byte(list+" "), comment)), trusted, "1", 6, ""},
		"of another version":   {sign("pipeops v1.2.2 SHA256SUMS"), trusted, "1", 6, ""},
		"a comment put in":     {strings.Replace(sign("x"), "comment: x", "comment: "+comment, 1), trusted, "1", 6, ""},
		"of another file":      {string(key.Sign([]byte("other"), comment)), trusted, "1", 6, ""},
		"cut short":            {good[:len(good)/2], trusted, "1", 6, ""},
		"empty":                {"", trusted, "1", 6, ""},
		"a proxy's page":       {"<html>\n<body>\n<p>\n</p>\n", trusted, "1", 6, ""},
		"nobody stamped a key": {"", "", "1", 0, ""},
		"two of two":           {good + two, both, "2", 0, "signed by " + another},
		"in any order":         {two + good, both, "2", 0, "signed by " + another},
		"one of two":           {good, both, "2", 6, "have 1 of the 2 signatures"},
		"the other of two":     {two, both, "2", 6, "have 1 of the 2 signatures"},
		"one twice":            {good + good, both, "2", 6, "have 1 of the 2 signatures"},
		"one for another":      {good + string(second.Sign([]byte(list), "pipeops v1.2.2 SHA256SUMS")), both, "2", 6, "have 1 of the 2 signatures"},
		"none of two":          {"", both, "2", 6, "not signed by a key"},
		"two of one key":       {good + two, trusted, "2", 2, "2 signatures are more than the 1 keys"},
		"two of no key":        {good + two, "", "2", 2, "2 signatures are more than the 0 keys"},
	} {
		for _, tool := range installedTools(t) {
			t.Run(tool+"/"+name, func(t *testing.T) {
				sums := filepath.Join(t.TempDir(), "SHA256SUMS")
				require.NoError(t, os.WriteFile(sums, []byte(list), 0o600))
				require.NoError(t, os.WriteFile(sums+".minisig", []byte(c.signatures), 0o600))
				said, code := bash(t, `
signature_tool() { signature_tool=`+tool+`; }
RELEASE_KEYS="$KEYS" PIPEOPS_VERSION=v1.2.3
signature_check "$SUMS" "pipeops v1.2.3 SHA256SUMS"`, "SUMS="+sums, "KEYS="+c.keys, "PIPEOPS_UPDATE_SIGNATURES="+c.needed)
				assert.Equal(t, c.code, code, said)
				assert.Contains(t, said, c.says)
			})
		}
	}
}

func TestSignatures_NoProgram(t *testing.T) {
	const check = `
signature_tool() { return 1; }
RELEASE_KEYS=x PIPEOPS_VERSION=v1.2.3
signature_check /no/file x`
	said, code := bash(t, check)
	assert.Equal(t, 6, code, said)
	assert.Contains(t, said, "the signature of v1.2.3 cannot be checked")
	assert.Contains(t, said, "apt-get install -y minisign")
	said, code = bash(t, check, "PIPEOPS_ALLOW_UNSIGNED=yes")
	assert.Zero(t, code, said)
	assert.Contains(t, said, "the signature of v1.2.3 is not checked")
	said, code = bash(t, strings.Replace(check, "KEYS=x", "KEYS=x,y", 1), "PIPEOPS_ALLOW_UNSIGNED=yes", "PIPEOPS_UPDATE_SIGNATURES=2")
	assert.Equal(t, 6, code, "who asks for two signatures does not do without: "+said)
}

// TestScripts_SafeArithmetic: Bash evaluates a variable in (( )) as an expression, whose subscripts
// run commands. So each is one that the script computes, or that number has passed.
func TestScripts_SafeArithmetic(t *testing.T) {
	own := strings.Fields("EUID SECONDS REPLY PIPEOPS_WAIT PIPEOPS_UPDATE_SIGNATURES signed MAX_CLOCK_DIFFERENCE MEMORY_WORKER_MB MEMORY_GOOD_MB has free memory disk " +
		"COMPONENTS_WAIT code deadline difference seconds failures doctor_failed line i date s a b capabilities wants BASH_REMATCH")
	expression := regexp.MustCompile(`\(\((.*?)\)\)`)
	length := regexp.MustCompile(`\$\{#[^}]*\}`)
	name := regexp.MustCompile(`[A-Za-z_][A-Za-z_0-9]*`)
	parts, err := filepath.Glob("*.sh")
	require.NoError(t, err)
	for _, part := range parts {
		text, err := os.ReadFile(part)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			for _, found := range expression.FindAllStringSubmatch(line, -1) {
				assert.NotContains(t, found[1], "facts[", "%s:%d", part, i+1)
				for _, word := range name.FindAllString(length.ReplaceAllString(found[1], ""), -1) {
					assert.Contains(t, own, word, "%s:%d: pass it to number first: %s", part, i+1, line)
				}
			}
		}
	}
}

func TestSettings_RefuseNonNumbers(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for _, wait := range []string{"a[$(touch " + marker + ")]", "1+1", "", "-1", "0x10", "1234567890123"} {
		said, code := bash(t, `printf '%s' "$((PIPEOPS_WAIT + 1))"`, "PIPEOPS_WAIT="+wait)
		if wait == "" {
			assert.Equal(t, "181", said)
			continue
		}
		assert.Equal(t, 2, code, said)
	}
	for _, number := range []string{"a[$(touch " + marker + ")]", "0", "two", "-1"} {
		said, code := bash(t, "true", "PIPEOPS_UPDATE_SIGNATURES="+number)
		assert.Equal(t, 2, code, said)
		assert.Contains(t, said, "PIPEOPS_UPDATE_SIGNATURES=")
	}
	assert.NoFileExists(t, marker)
	said, _ := bash(t, `printf '%s' "$((PIPEOPS_WAIT + 1))"`, "PIPEOPS_WAIT=08")
	assert.Equal(t, "9", said, "not octal")
}

// TestManifest_Verified compares the script's own version with the checksum in the script, whatever
// list a site has beside it, and another version with that list.
func TestManifest_Verified(t *testing.T) {
	const manifest = "kind: Namespace\n"
	for name, c := range map[string]struct {
		published, version, listed string
		code                       int
		says                       string
	}{
		"as it was released":                 {manifest, "v1.2.3", "", 0, ""},
		"changed, its own version":           {manifest + "#", "v1.2.3", manifest + "#", 6, "agent.yaml is not what its publisher made"},
		"another version":                    {"kind: Pod\n", "v1.2.4", "kind: Pod\n", 0, ""},
		"changed, another version":           {"kind: Pod\n#", "v1.2.4", "kind: Pod\n", 6, "agent.yaml is not what its publisher made"},
		"another version, and nothing lists": {"kind: Pod\n", "v1.2.4", "", 6, "there is no checksum for agent.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte(c.published), 0o600))
			list := ""
			if c.listed != "" {
				list = sum([]byte(c.listed)) + "  agent.yaml\n"
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(list), 0o600))
			said, code := bash(t, `
fetch() { cp "$SITE/${1##*/}" "$2"; } # the download itself is tested with a real site
signature_check() { [[ $PIPEOPS_VERSION != "$RELEASE_VERSION" ]] || fail 6 PO-9113 "its own version needs no signature" "" ""; }
RELEASE_VERSION=v1.2.3 PIPEOPS_VERSION=$VERSION RELEASE_SHA256SUMS="$SUM other,$SUM agent.yaml"
fetch_release agent.yaml "$SITE/installed.yaml"`, "SITE="+dir, "VERSION="+c.version, "SUM="+sum([]byte(manifest)))
			assert.Equal(t, c.code, code, said)
			assert.Contains(t, said, c.says)
		})
	}
}
