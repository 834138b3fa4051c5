package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// fileGatewayKey is the file with the key that encrypts what the gateway stores, where the CA's key
// is not given.
const fileGatewayKey = "gateway.key"

// GatewayStorage returns where the gateway keeps certificates. Unless create is set, a missing key
// is an error.
func GatewayStorage(data Data, s *store.Store, now func() time.Time, create bool) (*webcerts.Storage, error) {
	key, err := GatewayKey(data, create)
	if err != nil {
		return nil, err
	}
	return NewGatewayStorage(s, key, now), nil
}

// NewGatewayStorage returns the storage of a gateway that has the key.
func NewGatewayStorage(s *store.Store, key ca.Key, now func() time.Time) *webcerts.Storage {
	return &webcerts.Storage{DB: s, Key: key, Holder: strings.ToLower(rand.Text()), Now: now}
}

// GatewayKey returns the key of gateways. Where control planes share the CA's key, it is derived
// from that one, which gateways do not need.
func GatewayKey(data Data, create bool) (ca.Key, error) {
	if data.CAKey.Given() {
		return data.CAKey.Derive("gateways")
	}
	return gatewayKey(filepath.Join(data.Dir, fileGatewayKey), create)
}

func gatewayKey(file string, create bool) (ca.Key, error) {
	text, err := os.ReadFile(file)
	switch {
	case err == nil:
		key, err := ca.ParseKey(string(text))
		if err != nil {
			return key, fmt.Errorf("%s: %w", file, err)
		}
		return key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return ca.Key{}, fmt.Errorf("the gateway's key: %w", err)
	case !create:
		return ca.Key{}, ErrNoGateway
	}
	key := ca.NewKey()
	return key, atomicfile.Write(file, []byte(key.Text()+"\n"))
}

// ErrNoGateway means that serve was never started with a gateway.
var ErrNoGateway = errors.New("the control plane has no gateway; start `pipeops-controlplane serve` with --gateway-domain")
