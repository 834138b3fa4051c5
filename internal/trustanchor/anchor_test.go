package trustanchor_test

import (
	"crypto/x509"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found := len(trustanchor.Parse(text)) > 0
		if trustanchor.Append(x509.NewCertPool(), text) != found {
			t.Fatal("not what was parsed")
		}
	})
}
