// Package contextfile is the file with the contexts of pipeops-runner: under a name, each has the
// credentials for a control plane, a default agent and a default namespace.
package contextfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// contextName matches names that are names of files too.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// File is the content of the file.
type File struct {
	CurrentContext string    `json:"currentContext,omitempty"`
	Contexts       []Context `json:"contexts"`

	path string
}

// Context is a set of defaults. Credentials is a path.
type Context struct {
	Name        string `json:"name"`
	Credentials string `json:"credentials"`
	Agent       string `json:"agent,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
}

// Folder returns the folder of the file and the credentials, in the user's configuration directory.
func Folder() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification ignores relative paths
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", fmt.Errorf("contexts: no configuration directory: %w", err)
		}
	}
	return filepath.Join(dir, "pipeops"), nil
}

// Load reads the file. A missing file has no contexts.
func Load() (*File, error) {
	dir, err := Folder()
	if err != nil {
		return nil, err
	}
	f := &File{path: filepath.Join(dir, "contexts.yaml")}
	text, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if err := f.parse(text); err != nil {
		return nil, fmt.Errorf("contexts: %s: %w", f.path, err)
	}
	return f, nil
}

func (f *File) parse(text []byte) error {
	if err := decode.LimitsFor(maxFile).YAML(text, f); err != nil {
		return err
	}
	for _, c := range f.Contexts {
		if err := ValidName(c.Name); err != nil {
			return err
		}
	}
	return nil
}

// ValidName returns an error for text that names no context.
func ValidName(name string) error {
	if !contextName.MatchString(name) {
		return fmt.Errorf("%q cannot name a context: use up to 63 letters, digits and ._@-", name)
	}
	return nil
}

// Save writes the file, readable only by its owner.
func (f *File) Save() error {
	text, err := decode.ToYAML(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	if err := atomicfile.Write(f.path, text); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

// Find returns a context, to be changed in place; nil if there is none of that name.
func (f *File) Find(name string) *Context {
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Contexts[i]
}

// Get is like Find with an error that lists the contexts.
func (f *File) Get(name string) (*Context, error) {
	if c := f.Find(name); c != nil {
		return c, nil
	}
	if len(f.Contexts) == 0 {
		return nil, fmt.Errorf("no context %q, and no other: create one with `pipeops-runner login FILE --context %s`", name, name)
	}
	return nil, fmt.Errorf("no context %q; `pipeops-runner context list` lists them", name)
}

// Put returns the context of that name, which it adds if there is none. Its credentials get a place
// of their own.
func (f *File) Put(name string) (*Context, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	if c := f.Find(name); c != nil {
		return c, nil
	}
	dir := filepath.Join(filepath.Dir(f.path), "credentials")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	f.Contexts = append(f.Contexts, Context{Name: name, Credentials: filepath.Join(dir, name+".json")})
	slices.SortFunc(f.Contexts, func(a, b Context) int { return cmp.Compare(a.Name, b.Name) })
	return f.Find(name), nil
}

// Delete removes a context and its credentials.
func (f *File) Delete(name string) error {
	c, err := f.Get(name)
	if err != nil {
		return err
	}
	file := c.Credentials
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if f.CurrentContext == name {
		f.CurrentContext = ""
	}
	if err := f.Save(); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}
