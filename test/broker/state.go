package broker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
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
	unlock, err := lock(root, os.O_RDONLY)
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
		if *port, err = freePort(ctx, taken); err != nil {
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

// freePort looks below the kernel's ephemeral range, so that an outgoing
// connection does not take the port while the broker is stopped.
func freePort(ctx context.Context, taken map[int]bool) (int, error) {
	const from, count = 20000, 12000
	for range 200 {
		n, err := rand.Int(rand.Reader, big.NewInt(count))
		if err != nil {
			return 0, err
		}
		port := from + int(n.Int64())
		if !taken[port] && portIsFree(ctx, port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("found no free port between %d and %d on this machine", from, from+count)
}

func portIsFree(ctx context.Context, port int) bool {
	// All interfaces, so that an extra listener fits as well.
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(port)) // for a moment
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func secret() string { return rand.Text() }

// lowSecret returns a secret for names, which are in lower case.
func lowSecret() string { return strings.ToLower(secret()[:8]) }

// lock takes an exclusive lock on a file or folder until the returned function is
// called. One that was removed meanwhile is not the lock any more: try again.
func lock(path string, flags int) (func(), error) {
	for {
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		held, err1 := f.Stat()
		now, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, now) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}
