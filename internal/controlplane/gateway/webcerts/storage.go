// Package webcerts has the gateway's certificates: certmagic with its storage in the control
// plane's database, from an ACME CA or from a CA of the gateway's own. The package obtains
// certificates only for hosts that its caller allows.
package webcerts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// maxValue bounds what is stored under one name.
	maxValue = 256 << 10
	// lease is how long a lock is held by a gateway that is not heard of; certmagic renews it.
	lease = 2 * time.Minute
	// lockPoll is how often a lock is tried that another gateway has.
	lockPoll = time.Second
	timeout  = 10 * time.Second
)

// Storage implements certmagic.Storage. What it stores is encrypted.
type Storage struct {
	DB  *store.Store
	Key ca.Key
	// Holder names this gateway in locks.
	Holder string
	Now    func() time.Time

	locks limit.Locks // the database keeps processes apart only: a holder may take its own lock again
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// purpose binds what is encrypted to its name.
func purpose(name string) string { return "gateway file " + name }

// Store implements certmagic.Storage.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("store %s: %d bytes are more than %d", key, len(value), maxValue)
	}
	sealed, err := s.Key.Seal(value, purpose(key))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.DB.PutGatewayFile(ctx, store.GatewayFile{Name: key, Sealed: sealed, Size: int64(len(value)), ModifiedAt: s.Now()})
}

// Load implements certmagic.Storage.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	f, err := s.file(ctx, key)
	if err != nil {
		return nil, err
	}
	text, err := s.Key.Unseal(f.Sealed, purpose(key))
	if err != nil {
		return nil, fmt.Errorf("read %s of the gateway: %w", key, err)
	}
	return text, nil
}

func (s *Storage) file(ctx context.Context, key string) (store.GatewayFile, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	f, err := s.DB.GatewayFile(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return f, fs.ErrNotExist
	}
	return f, err
}

// Delete implements certmagic.Storage.
func (s *Storage) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.DB.DeleteGatewayFiles(ctx, key)
}

// Exists implements certmagic.Storage.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	if _, err := s.file(ctx, key); err == nil {
		return true
	}
	names, err := s.names(ctx, key)
	return err == nil && len(names) > 0
}

// names lists what is in a folder, at any depth.
func (s *Storage) names(ctx context.Context, folder string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if folder = strings.Trim(folder, "/"); folder != "" {
		folder += "/"
	}
	return s.DB.GatewayFiles(ctx, folder)
}

// List implements certmagic.Storage.
func (s *Storage) List(ctx context.Context, folder string, recursive bool) ([]string, error) {
	names, err := s.names(ctx, folder)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fs.ErrNotExist
	}
	if recursive {
		return names, nil
	}
	folder = strings.Trim(folder, "/")
	var direct []string
	for _, name := range names {
		rest := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
		first, _, _ := strings.Cut(rest, "/")
		direct = append(direct, path.Join(folder, first))
	}
	return slices.Compact(direct), nil
}

// Stat implements certmagic.Storage.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	f, err := s.file(ctx, key)
	if err == nil {
		return certmagic.KeyInfo{Key: key, Modified: f.ModifiedAt, Size: f.Size, IsTerminal: true}, nil
	}
	if names, listed := s.names(ctx, key); listed == nil && len(names) > 0 {
		return certmagic.KeyInfo{Key: key}, nil
	}
	return certmagic.KeyInfo{}, err
}

// Lock implements certmagic.Locker. It excludes this process's other callers too.
func (s *Storage) Lock(ctx context.Context, name string) error {
	if err := s.locks.Lock(ctx, name); err != nil {
		return err
	}
	err := s.lockOthersOut(ctx, name)
	if err != nil {
		s.locks.Unlock(name)
	}
	return err
}

func (s *Storage) lockOthersOut(ctx context.Context, name string) error {
	for {
		has, err := s.DB.LockGateway(ctx, name, s.Holder, lease)
		if err != nil || has {
			return err
		}
		if !retry.Wait(ctx, retry.Jitter(lockPoll)) {
			return ctx.Err()
		}
	}
}

// RenewLockLease implements certmagic.LockLeaseRenewer.
func (s *Storage) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	has, err := s.DB.LockGateway(ctx, name, s.Holder, d)
	if err == nil && !has {
		err = fmt.Errorf("another gateway has taken the lock %s", name)
	}
	return err
}

// Unlock implements certmagic.Locker. It works when the caller's context has ended.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	defer s.locks.Unlock(name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return s.DB.UnlockGateway(ctx, name, s.Holder)
}

// Alone runs a function in one gateway at a time, until the context ends.
func (s *Storage) Alone(ctx context.Context, name string, run func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := s.Lock(ctx, name); err != nil {
			retry.Wait(ctx, retry.Jitter(lockPoll)) // the database is away
			continue
		}
		if err := s.hold(ctx, name, run); err != nil {
			return err
		}
	}
	return nil
}

// hold runs as long as the lock is held.
func (s *Storage) hold(ctx context.Context, name string, run func(context.Context) error) error {
	held, lost := context.WithCancel(ctx)
	defer func() { _ = s.Unlock(ctx, name) }() // it ends by itself
	done := make(chan error, 1)
	go func() { done <- run(held) }()
	tick := time.NewTicker(lease / 4)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			lost()
			return err
		case <-tick.C:
			if s.RenewLockLease(ctx, name, lease) != nil {
				lost()
			}
		}
	}
}
