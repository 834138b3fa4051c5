package credentials_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// The certificate names the operator who acts as its Runner. A malformed name is no name.
func TestOperatorExtension(t *testing.T) {
	named := func(extensions ...pkix.Extension) string {
		return credentials.OperatorOf(&x509.Certificate{Extensions: extensions})
	}
	assert.Empty(t, named())
	for _, name := range []string{"alice", "openid/zoë@example.com"} {
		extension, err := credentials.OperatorExtension(name)
		require.NoError(t, err)
		assert.False(t, extension.Critical, "an agent that does not know it accepts the certificate")
		assert.Equal(t, name, named(extension))
		for what, value := range map[string][]byte{
			"cut": extension.Value[:len(extension.Value)-1], "longer": append(extension.Value[:len(extension.Value):len(extension.Value)], 0),
			"nothing": nil, "no text": {2, 1, 5}, "no UTF-8": {asn1.TagUTF8String, 1, 0xff},
		} {
			assert.Empty(t, named(pkix.Extension{Id: extension.Id, Value: value}), what)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 257)} {
		_, err := credentials.OperatorExtension(name)
		require.Error(t, err)
	}
}
