package credentials_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// A caller could connect with what came beside the error.
func TestParseGitURL_ErrorHasNoResult(t *testing.T) {
	for _, url := range []string{
		"https://git.example.com/shop/../payroll.git", "https://git.example.com/", "git@git.example.com:-x", "ssh://-o@git.example.com/x",
	} {
		got, err := runnerapi.ParseGitURL(url)
		require.Error(t, err, url)
		assert.Zero(t, got, url)
	}
	credentials, other := soundCredentials(t), soundCredentials(t)
	credentials.Endorsement = other.Certificate // of another key
	cert, err := credentials.TLSCertificate()
	require.ErrorContains(t, err, "endorsement")
	assert.Empty(t, cert.Certificate)
}
