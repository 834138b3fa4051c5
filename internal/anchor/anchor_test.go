package anchor_test

import (
	"crypto/x509"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/internal/anchor"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found := len(anchor.Parse(text)) > 0
		if anchor.Append(x509.NewCertPool(), text) != found {
			t.Fatal("not what was parsed")
		}
	})
}
