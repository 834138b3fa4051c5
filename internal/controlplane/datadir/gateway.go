package datadir

import (
	"context"
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

// GatewayStorage returns where the gateway keeps certificates. A missing key is an error.
func GatewayStorage(data Data, s *store.Store, now func() time.Time) (*webcerts.Storage, error) {
	key, err := GatewayKey(data)
	if err != nil {
		return nil, err
	}
	return NewGatewayStorage(s, key, now), nil
}

// CreateGatewayStorage is like GatewayStorage, and makes a missing key. What was encrypted with a
// lost key is of no use to anyone: it is removed, and the gateway obtains new certificates. lost is
// the number of these files.
func CreateGatewayStorage(ctx context.Context, data Data, s *store.Store, now func() time.Time) (storage *webcerts.Storage, lost int, err error) {
	storage, err = GatewayStorage(data, s, now)
	if !errors.Is(err, ErrNoGateway) {
		return storage, 0, err
	}
	unreadable, err := s.GatewayFiles(ctx, "")
	if err != nil {
		return nil, 0, err
	}
	for _, name := range unreadable {
		if err := s.DeleteGatewayFiles(ctx, name); err != nil {
			return nil, 0, err
		}
	}
	key := ca.NewKey()
	if err := atomicfile.Write(filepath.Join(data.Dir, fileGatewayKey), []byte(key.Text()+"\n")); err != nil {
		return nil, 0, err
	}
	return NewGatewayStorage(s, key, now), len(unreadable), nil
}

// NewGatewayStorage returns the storage of a gateway that has the key.
func NewGatewayStorage(s *store.Store, key ca.Key, now func() time.Time) *webcerts.Storage {
	return &webcerts.Storage{DB: s, Key: key, Holder: strings.ToLower(rand.Text()), Now: now}
}

// GatewayKey returns the key of gateways. Where control planes share the CA's key, it is derived
// from that one, which gateways do not need.
func GatewayKey(data Data) (ca.Key, error) {
	if data.CAKey.Given() {
		return data.CAKey.Derive("gateways")
	}
	file := filepath.Join(data.Dir, fileGatewayKey)
	text, err := os.ReadFile(file)
	switch {
	case err == nil:
		key, err := ca.ParseKey(string(text))
		if err != nil {
			return key, fmt.Errorf("%s: %w", file, err)
		}
		return key, nil
	case errors.Is(err, fs.ErrNotExist):
		return ca.Key{}, ErrNoGateway
	}
	return ca.Key{}, fmt.Errorf("the gateway's key: %w", err)
}

// ErrNoGateway means that serve was never started with a gateway.
var ErrNoGateway = errors.New("the control plane has no gateway; start `pipeops-controlplane serve` with --gateway-domain")
