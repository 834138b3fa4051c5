package kubetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// share returns a cluster that the packages of this machine share: it starts with the first of them
// and stops with the last. Its name has a digest of the agent's manifest, because other checkouts
// may have another one.
func share(ctx context.Context, options cluster.Options) (*cluster.Cluster, error) {
	manifest, err := deployments.Agent()
	if err != nil {
		return nil, err
	}
	options.Name = fmt.Sprintf("shared-%.4x-%s", sha256.Sum256(manifest), options.Name)
	path := filepath.Join(os.TempDir(), "pipeops-test-"+options.Name)
	unlock, err := filelock.Wait(ctx, path+".start", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unlock() }()
	used, err := filelock.Share(path + ".users")
	if err == nil && used == nil {
		err = fmt.Errorf("%s.users is locked by a process that does not hold %s.start", path, path)
	}
	if err != nil {
		return nil, err
	}
	c, err := cluster.Get(options.Name)
	if err != nil || !c.Ready() {
		if err := cluster.Down(ctx, options.Name); err != nil {
			return nil, errors.Join(err, used.Close())
		}
		if c, err = cluster.Up(ctx, options); err != nil {
			return nil, errors.Join(err, used.Close())
		}
	}
	release = append(release, func(ctx context.Context) error { return leave(ctx, c, path, used) })
	return c, nil
}

// leave stops a shared cluster that no other package uses.
func leave(ctx context.Context, c *cluster.Cluster, path string, used *os.File) error {
	unlock, err := filelock.Wait(ctx, path+".start", nil)
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	if err := used.Close(); err != nil {
		return err
	}
	last, err := filelock.Try(path + ".users")
	if err != nil || last == nil {
		return err
	}
	defer func() { _ = last.Close() }()
	return c.Down(ctx)
}
