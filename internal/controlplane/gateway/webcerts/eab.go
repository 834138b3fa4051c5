package webcerts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/mholt/acmez/v3/acme"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// EAB binds an ACME account to one that the CA knows already (RFC 8555, section 7.3.4).
type EAB acme.EAB

var errEABForm = errors.New("it is not an HMAC key in base64url in one line")

// ReadEAB reads the HMAC key of a key ID, as the CA gave both. The errors have nothing of it.
func ReadEAB(keyID, file string) (*EAB, error) {
	text, err := boundedfile.Read(file, maxKeyFile)
	if err != nil {
		return nil, err
	}
	key := strings.TrimRight(strings.TrimSpace(string(text)), "=") // some CAs pad it
	if decoded, err := base64.RawURLEncoding.DecodeString(key); err != nil || len(decoded) == 0 {
		return nil, fmt.Errorf("%s: %w", file, errEABForm)
	}
	return &EAB{KeyID: keyID, MACKey: key}, nil
}
