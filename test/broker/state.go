package broker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/debian"
	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// state is what makes a broker the same one after a restart. It is kept in a
// 0600 file because it holds the passwords.
type state struct {
	AMQPSPort      int               `json:"amqpsPort"`
	ManagementPort int               `json:"managementPort"`
	DistPort       int               `json:"distPort"`
	EPMDPort       int               `json:"epmdPort"`
	Cookie         string            `json:"cookie"`
	Passwords      map[string]string `json:"passwords"`
	SANs           []string          `json:"sans"`
	Listen         []string          `json:"listen"`
}

func (s *state) ports() []int {
	return []int{s.AMQPSPort, s.ManagementPort, s.DistPort, s.EPMDPort}
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// root returns the folder of all brokers of this user.
func root() (string, error) {
	cache, err := os.UserCacheDir() // honours XDG_CACHE_HOME
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(cache, "pipeops-test", "broker"), nil
}

func readState(dir string) (*state, error) {
	body, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("read %s/state.json: %w; remove the folder", dir, err)
	}
	return &s, nil
}

func (s *state) write(dir string) error {
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "state.json"), body, 0o600)
}

// newState picks ports and secrets for a new broker. The caller's folder is
// written before the lock is let go, so that two new brokers never share a port.
func newState(ctx context.Context, root, dir string) (*state, error) {
	unlock, err := lock(ctx, filepath.Join(root, ".ports.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()

	taken, err := takenPorts(root)
	if err != nil {
		return nil, err
	}
	s := &state{Cookie: secret(), Passwords: map[string]string{
		UserControlPlane: secret(), UserRunner: secret(), userAdmin: secret(),
	}}
	for _, port := range []*int{&s.AMQPSPort, &s.ManagementPort, &s.DistPort, &s.EPMDPort} {
		if *port, err = debian.FreePort(ctx, taken); err != nil {
			return nil, err
		}
		taken[*port] = true
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return s, s.write(dir)
}

func takenPorts(root string) (map[int]bool, error) {
	taken := map[int]bool{}
	files, err := filepath.Glob(filepath.Join(root, "*", "state.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		s, err := readState(filepath.Dir(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner has just removed it
		}
		if err != nil {
			return nil, err
		}
		for _, port := range s.ports() {
			taken[port] = true
		}
	}
	return taken, nil
}

func secret() string { return rand.Text() }

// lowSecret returns a secret for names, which are in lower case.
func lowSecret() string { return strings.ToLower(secret()[:8]) }

// lock takes an exclusive lock on a file until the returned function is called.
func lock(ctx context.Context, path string) (func(), error) {
	unlock, err := filelock.Wait(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return func() { _ = unlock() }, nil
}
