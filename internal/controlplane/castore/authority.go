// Package castore keeps the CA usable: where it is stored, its log of certificates, its upkeep
// while the control plane serves. The CA itself is in package ca.
package castore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// sealedCA keeps the CA in the database that all control planes share, encrypted with a key that is
// not in the database. The version is bound into the sealed text.
type sealedCA struct {
	store *store.Store
	key   ca.Key

	mu      sync.Mutex
	version int64 // the version that Load returned last
}

var _ ca.Keeper = (*sealedCA)(nil)

// String implements ca.Keeper.
func (k *sealedCA) String() string { return "in the database" }

// Load implements ca.Keeper.
func (k *sealedCA) Load() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	sealed, err := k.store.Authority(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	text, err := k.key.Unseal(sealed.Text, sealPurpose(sealed.Version))
	if err != nil {
		return nil, fmt.Errorf("the one in the database cannot be opened with the key of --ca-key-file: %w; give the file that the first control plane had", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version = sealed.Version
	return text, nil
}

// Make implements ca.Keeper.
func (k *sealedCA) Make(text []byte) error {
	return k.put(text, 1, k.store.MakeAuthority)
}

// Replace implements ca.Keeper.
func (k *sealedCA) Replace(text []byte) error {
	k.mu.Lock()
	next := k.version + 1
	k.mu.Unlock()
	err := k.put(text, next, k.store.ReplaceAuthority)
	if errors.Is(err, store.ErrNotFound) {
		return datadir.ErrCABusy
	}
	return err
}

func (k *sealedCA) put(text []byte, version int64, put func(context.Context, store.Sealed) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	sealed, err := k.key.Seal(text, sealPurpose(version))
	if err != nil {
		return err
	}
	return put(ctx, store.Sealed{Version: version, Text: sealed})
}

func sealPurpose(version int64) string { return fmt.Sprintf("ca %d", version) }

// Open opens the CA in the data directory, or in the database that several control planes share.
// Only a serving control plane moves it there, because another one may still serve from the
// directory.
func Open(ctx context.Context, d datadir.Data, s *store.Store, domains ca.Domains, now func() time.Time, serving bool) (*ca.CA, error) {
	_, err := s.Authority(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	switch inDatabase := err == nil; {
	case !d.Shared() && inDatabase:
		return nil, errors.New("the certificate authority is in the database, for several control planes; give --ca-key-file as `pipeops-controlplane serve` has it")
	case !d.Shared():
		return ca.Open(filepath.Join(d.Dir, datadir.FileCA), domains, certificateLog{s}, now)
	case d.Has(datadir.FileCA) && !serving && !inDatabase:
		return nil, fmt.Errorf("the certificate authority is in %s still; start `pipeops-controlplane serve` with --ca-key-file once, which moves it into the database", d.Dir)
	case d.Has(datadir.FileCA) && serving:
		if err := moveCA(d, s, domains, now); err != nil { //nolint:contextcheck // a ca.Keeper has a separate bound
			return nil, err
		}
	case !inDatabase:
		if err := mayMakeCA(ctx, d, s); err != nil {
			return nil, err
		}
	}
	return ca.OpenIn(&sealedCA{store: s, key: d.CAKey}, domains, certificateLog{s}, now)
}

// Domains returns the domains of certificates as the control plane serves them, or would.
func Domains(ctx context.Context, s *store.Store) (ca.Domains, error) {
	at, err := datadir.LoadAdvertised(ctx, s)
	if errors.Is(err, datadir.ErrNeverServed) {
		return ca.Domains{Trust: datadir.DefaultTrustDomain, Agents: datadir.DefaultAgentsDomain}, nil
	}
	return ca.Domains{Trust: at.TrustDomain, Agents: at.AgentsDomain}, err
}

// mayMakeCA refuses to create a CA if agents already have one.
func mayMakeCA(ctx context.Context, d datadir.Data, s *store.Store) error {
	_, err := datadir.LoadAdvertised(ctx, s)
	if errors.Is(err, datadir.ErrNeverServed) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the database has been served with a certificate authority that is not in it and not in %s; "+
			"start the control plane whose data directory has its %s first: it moves it into the database", d.Dir, datadir.FileCA)
	}
	return err
}

// moveCA moves the CA from the data directory into the database. The file stays under another name.
func moveCA(d datadir.Data, s *store.Store, domains ca.Domains, now func() time.Time) error {
	file := filepath.Join(d.Dir, datadir.FileCA)
	here, err := ca.Open(file, domains, certificateLog{s}, now) // verifies it
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	keep := &sealedCA{store: s, key: d.CAKey}
	if err := keep.Make(text); err != nil {
		return err
	}
	there, err := ca.OpenIn(keep, domains, certificateLog{s}, now)
	if err != nil {
		return err
	}
	if !here.Certificate().Equal(there.Certificate()) {
		return fmt.Errorf("there are two certificate authorities: one in %s, and another in the database; move %s away if the one in the database is right", file, file)
	}
	if err := os.Rename(file, file+".moved"); err != nil {
		return fmt.Errorf("data directory: %w; the CA is in the database: move %s away", err, file)
	}
	return nil
}

// maxKeyFile is more than a key needs, in bytes.
const maxKeyFile = 4 << 10

// ReadKey reads the key for Data.CAKey from a file.
func ReadKey(file string) (ca.Key, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return ca.Key{}, fmt.Errorf("--ca-key-file: %w", err)
	case info.Mode().Perm()&0o007 != 0:
		return ca.Key{}, fmt.Errorf("--ca-key-file: %s can be read by everybody; run `chmod 600 %s`", file, file)
	case info.Size() > maxKeyFile:
		return ca.Key{}, fmt.Errorf("--ca-key-file: %s %w", file, ca.ErrBadKey)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ca.Key{}, fmt.Errorf("--ca-key-file: %w", err)
	}
	key, err := ca.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return ca.Key{}, fmt.Errorf("--ca-key-file: %s %w", file, err)
	}
	return key, nil
}

// MakeKey writes a new key to a file that must not exist yet.
func MakeKey(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	_, err = f.WriteString(ca.NewKey().Text() + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}
