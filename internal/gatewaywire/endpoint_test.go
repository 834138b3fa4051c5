package gatewaywire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

func TestIsEndpoint(t *testing.T) {
	for text, ok := range map[string]bool{
		"93.184.216.34": true, "2606:2800::1": true, "lb-1.eu.example.com": true, "a.b": true, "xn--nxasmq6b.example": true,
		"": false, "localhost": false, "127.1": false, "0x7f.1": false, "1.2.3.4.5": false, "fe80::1%eth0": false, "::ffff:1.2.3.4": false,
		"2606:2800:0::1": false, "lb.example.com.": false, "Lb.example.com": false, "lb.example.com:443": false, "[::1]": false,
		"a..b": false, "-a.b": false, "a-.b": false, "a_b.c": false, "https://a.b": false, "a.b/c": false, "a@b.c": false,
		strings.Repeat("a", 64) + ".b": false, strings.Repeat("a.", 127) + "b": false,
	} {
		assert.Equal(t, ok, gatewaywire.IsEndpoint(text), text)
	}
}
