package operatorapi

import (
	"crypto/tls"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClient_Unreachable(t *testing.T) {
	refused := errors.New("dial tcp 192.0.2.1:8443: connect: connection refused")
	untrusted := &tls.CertificateVerificationError{Err: errors.New("signed by unknown authority")}
	for fix, cause := range map[string]error{
		"check that it runs there, and that nothing on the way refuses it":                            refused,
		"use the credentials of the control plane that answers there, and check this machine's clock": untrusted,
	} {
		c := &Client{url: "https://cp.example.com:8443"}
		err := c.unreachable(&url.Error{Op: "Get", URL: "https://cp.example.com:8443/v1/operator/agents", Err: cause})
		require.ErrorIs(t, err, cause)
		assert.EqualError(t, err, "the control plane at https://cp.example.com:8443 could not be reached: "+cause.Error()+" (fix: "+fix+")")
	}
}
