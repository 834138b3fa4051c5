package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// TestServer_SettingsOfRuns: what is given stays for later runs, and what follows from it does not.
func TestServer_SettingsOfRuns(t *testing.T) {
	state := t.TempDir()
	run := func(address string, env ...string) string {
		return bashOK(t, `
facts[ADDRESS]="$MACHINE"
hostname() { echo Shop_1.example.com; }
logged() { return "${REACHED:-1}"; } # curl of Let's Encrypt
server_settings
server_check
printf '%s\n' "$server_given" >"$STATE_DIR/server"
server_ca
echo "$PIPEOPS_ADDRESS $PIPEOPS_DOMAIN $CLUSTER_NAME ${PIPEOPS_GATEWAY_CA#https://}"`,
			append([]string{"PIPEOPS_INSTALL_STATE=" + state, "HOME=" + state, "MACHINE=" + address}, env...)...)
	}
	assert.Equal(t, "10.0.0.5 10-0-0-5.sslip.io shop1 internal\n", run("10.0.0.5", "REACHED=0"))
	assert.Equal(t, "10.0.0.6 10-0-0-6.sslip.io shop1 internal\n", run("10.0.0.6"), "it has another address")
	const letsEncrypt = "acme-v02.api.letsencrypt.org/directory"
	assert.Equal(t, "203.0.113.5 203-0-113-5.sslip.io shop1 "+letsEncrypt+"\n", run("10.0.0.6", "REACHED=0", "PIPEOPS_ADDRESS=203.0.113.5"))
	assert.Equal(t, "203.0.113.5 203-0-113-5.sslip.io shop1 internal\n", run("10.0.0.6"), "the address stays, and there is no way to Let's Encrypt")
	assert.Equal(t, "203.0.113.5 apps.example.com shop1 "+letsEncrypt+"\n", run("10.0.0.6", "REACHED=0", "PIPEOPS_DOMAIN=apps.example.com"))
	assert.Equal(t, "203.0.113.5 apps.example.com other internal\n", run("10.0.0.6", "PIPEOPS_GATEWAY_CA=internal", "CLUSTER_NAME=other"))
	assert.Equal(t, "203.0.113.5 apps.example.com other internal\n", run("10.0.0.6", "REACHED=0"))
}

func TestServer_RefusesSettings(t *testing.T) {
	for setting, says := range map[string]string{
		"PIPEOPS_ADDRESS=2001:db8::1":         "name this machine's IPv4 address or host name",
		"PIPEOPS_ADDRESS=cp.example.com":      "name a domain for Apps",
		"PIPEOPS_NAME_SERVICE=none":           "name a domain for Apps",
		"PIPEOPS_DOMAIN=Apps":                 "name a domain for Apps",
		"PIPEOPS_GATEWAY_CA=http://ca.test":   "use internal, or the https URL",
		"PIPEOPS_NAME_SERVICE=$(touch /ran)x": "use none, or the domain",
	} {
		said := bashOK(t, "facts[ADDRESS]=192.0.2.1; server_settings; server_check", setting, "PIPEOPS_INSTALL_STATE="+t.TempDir())
		assert.Contains(t, said, says, setting)
	}
	for address, private := range map[string]bool{
		"10.1.2.3": true, "172.31.0.1": true, "172.32.0.1": false, "192.168.0.1": true, "100.64.0.1": true, "100.128.0.1": false, "203.0.113.5": false, "cp.example.com": false,
	} {
		_, code := bash(t, "trap - ERR; address_private "+address)
		assert.Equal(t, private, code == 0, address)
	}
}

// TestTokenForm_AsParsed: the installer takes the tokens that the agent takes.
func TestTokenForm_AsParsed(t *testing.T) {
	token, err := controlapi.NewToken(strings.Repeat("ab", 32))
	require.NoError(t, err)
	whole := token.At("https://cp.example.com:8443").Reveal()
	for text, ok := range map[string]bool{
		whole: true, token.Reveal(): true, "  " + whole + " \n": true, whole[:60]: false, "x" + whole: false, strings.Replace(whole, "_", "\n_", 1): false, "": false,
	} {
		_, err := controlapi.ParseToken(text)
		assert.Equal(t, ok, err == nil, text)
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, code := bash(t, `trap - ERR; [[ $(trimmed "$(<"$FILE")") =~ $TOKEN_FORM ]]`, "FILE="+file)
		assert.Equal(t, ok, code == 0, text)
	}
}
