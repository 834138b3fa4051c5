package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// Store keeps the stored parts of an Identity, for all replicas of the agent. In a cluster it is a
// Secret, on a VM a File.
type Store interface {
	// Load returns the stored parts and their version. If nothing is stored, it returns nil parts
	// and the version "".
	Load(ctx context.Context) (parts map[string][]byte, version string, err error)
	// Save replaces the parts of that version. If something else was stored since, because another
	// replica was first, it does nothing and returns false.
	Save(ctx context.Context, parts map[string][]byte, version string) (bool, error)
	// String describes the place, for messages.
	String() string
}

// File is a Store in a directory, for an agent that is not a pod. Only its owner can read the file.
// Its versions keep an agent from overwriting what it has not read. They do not arbitrate between
// replicas that write at the same moment.
type File struct{ Dir string }

func (f File) path() string   { return filepath.Join(f.Dir, "identity.json") }
func (f File) String() string { return f.path() }

// Load reads the file. One that others can read is refused: its key may be
// known by now.
func (f File) Load(context.Context) (map[string][]byte, string, error) {
	text, err := boundedfile.Secret(f.path(), 4*maxPart)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	parts := map[string][]byte{}
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, "", fmt.Errorf("%s is damaged: %w", f.path(), err)
	}
	sum := sha256.Sum256(text)
	return parts, hex.EncodeToString(sum[:]), nil
}

// Save writes a new file and moves it into place, so that a crash leaves the
// old one or the new one.
func (f File) Save(ctx context.Context, parts map[string][]byte, version string) (saved bool, err error) {
	if _, now, err := f.Load(ctx); err != nil || now != version {
		return false, err
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return false, err
	}
	return true, atomicfile.Write(f.path(), text)
}
