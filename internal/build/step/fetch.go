package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxSecretFile bounds a key of a Secret.
const maxSecretFile = 1 << 20

// Fetch gets the files of a commit.
type Fetch struct {
	URL    string
	Ref    runnerapi.GitRef
	Path   string
	Secret string // name of the Secret whose keys are in GitSecret; empty for none
	Out    io.Writer

	Dir        string // Work
	CommitDir  string
	SecretDir  string // GitSecret
	ProxyOfEnv bool   // go through the proxy that the environment names
	Guard      egress.Guard
	Signers    []signature.Signers // by whom the commit must be signed
}

// Run returns the commit whose files are in the context now.
func (f Fetch) Run(ctx context.Context) (Result, error) {
	remote := git.Remote{URL: f.URL, Guard: f.Guard, Signers: f.Signers}
	if f.ProxyOfEnv {
		remote.Proxy = proxy.FromEnvironment()
	}
	public := sigstore.NewPublic(remote.Transport(), time.Now, sigstore.Mirror{})
	for n := range remote.Signers {
		remote.Signers[n].Sigstore = func() (*verify.Verifier, error) { return public.Verifier(ctx) }
	}
	if f.Secret != "" {
		auth, err := f.auth()
		if err != nil {
			return Result{}, fetchError(err)
		}
		remote.Auth = auth
	}
	_, _ = fmt.Fprintf(f.Out, "getting %s\n", f.URL)
	context := filepath.Join(f.Dir, filepath.Base(Context))
	if err := os.Mkdir(context, 0o755); err != nil { //nolint:gosec // for the builder's user
		return Result{}, fmt.Errorf("make the place for the files: %w", err)
	}
	commit, err := git.Checkout(ctx, remote, f.Ref, f.Path, context, git.CheckoutLimits)
	if err != nil {
		return Result{}, fetchError(err)
	}
	_, _ = fmt.Fprintf(f.Out, "commit %s\n", commit)
	err = os.WriteFile(filepath.Join(f.CommitDir, commitFile), []byte(commit), 0o600)
	return Result{Commit: commit}, err
}

func (f Fetch) auth() (git.Auth, error) {
	u, err := runnerapi.ParseGitURL(f.URL)
	if err != nil {
		return git.Auth{}, err
	}
	data, err := readSecret(f.SecretDir)
	if err != nil {
		return git.Auth{}, err
	}
	return git.ReadAuth(f.Secret, data, u)
}

// readSecret reads the files of a Secret's volume. Those that begin with two dots are the
// kubelet's.
func readSecret(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the Secret: %w", err)
	}
	data := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		file, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the Secret: %w", err)
		}
		data[e.Name()], err = io.ReadAll(io.LimitReader(file, maxSecretFile))
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("read the Secret: %w", err)
		}
	}
	return data, nil
}

func fetchError(err error) error {
	if known, ok := errors.AsType[*git.Error](err); ok {
		return &failure{string(known.Reason), known.Message, known.Fix}
	}
	return err
}
