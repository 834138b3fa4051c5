// Package contextfile has the files with the contexts of pipeops-runner and pipeops-controlplane:
// under a name, each has credentials for a control plane. The commands about them that both
// programs have are here, too.
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

// Kind is a program's contexts.
type Kind struct {
	// Program is the name of the program.
	Program string
	// file and folder are for the contexts and for their credentials.
	file, folder string
}

// The kinds of contexts.
var (
	Runner   = Kind{Program: "pipeops-runner", file: "contexts.yaml", folder: "credentials"}
	Operator = Kind{Program: "pipeops-controlplane", file: "operator-contexts.yaml", folder: "operator-credentials"}
)

// File is the content of the file.
type File struct {
	CurrentContext string    `json:"currentContext,omitempty"`
	Contexts       []Context `json:"contexts"`

	kind Kind
	path string
}

// Context is a set of defaults. Credentials is a path. An operator's context has no more than that.
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
func (k Kind) Load() (*File, error) {
	dir, err := Folder()
	if err != nil {
		return nil, err
	}
	f := &File{kind: k, path: filepath.Join(dir, k.file)}
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
		return nil, fmt.Errorf("no context %q, and no other: create one with `%s login FILE --context %s`", name, f.kind.Program, name)
	}
	return nil, fmt.Errorf("no context %q (fix: list them with `%s context list`)", name, f.kind.Program)
}

// Put returns the context of that name, which it adds if there is none. A new one names the file to
// which a login writes.
func (f *File) Put(name string) (*Context, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	if c := f.Find(name); c != nil {
		return c, nil
	}
	f.Contexts = append(f.Contexts, Context{Name: name, Credentials: f.place(name)})
	slices.SortFunc(f.Contexts, func(a, b Context) int { return cmp.Compare(a.Name, b.Name) })
	return f.Find(name), nil
}

// folder is where the credentials are that a login stores.
func (f *File) folder() string { return filepath.Join(filepath.Dir(f.path), f.kind.folder) }

// place returns where a login stores the credentials of a context.
func (f *File) place(name string) string { return filepath.Join(f.folder(), name+".json") }

// stores reports whether a login has stored the credentials of a context. Otherwise, the context
// names a file that someone else keeps.
func (f *File) stores(c *Context) bool { return c.Credentials == f.place(c.Name) }

// Delete removes a context, and its credentials if a login has stored them.
func (f *File) Delete(name string) error {
	c, err := f.Get(name)
	if err != nil {
		return err
	}
	file, stored := c.Credentials, f.stores(c)
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if f.CurrentContext == name {
		f.CurrentContext = ""
	}
	if err := f.Save(); err != nil {
		return err
	}
	if !stored {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}
