package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/sys/unix"
)

const (
	startTimeout  = 8 * time.Minute
	maxOpenFiles  = 1 << 20
	inheritedLock = 3
)

// Init is process 1 of the cluster in dir. It returns when the cluster has failed to start or was
// asked to end; the kernel then kills all that is left in the namespaces.
func Init(ctx context.Context, dir string) error {
	unix.CloseOnExec(inheritedLock) // it must die with us, not with a child
	config, err := load(dir)
	if err != nil {
		return err
	}
	journal, err := openJournal(dir)
	if err != nil {
		return err
	}
	if err := run(ctx, dir, config, journal); err != nil {
		return errors.Join(err, journal.add(Failed, "", err.Error()))
	}
	return nil
}

func run(ctx context.Context, dir string, config Config, journal *journal) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := arrange(starting, dir, config); err != nil {
		return err
	}
	if config.Registry != "" {
		server, err := serveRegistry(starting, config)
		if err != nil {
			return err
		}
		defer server.Close() //nolint:errcheck // the process ends
		if err := journal.add(Ready, "registry", ""); err != nil {
			return err
		}
	}
	supervisor := newSupervisor(journal)
	if err := supervisor.start(starting, config.Components); err != nil {
		return err
	}
	if err := journal.add(Up, "", ""); err != nil {
		return err
	}
	return supervisor.run(ctx)
}

func arrange(ctx context.Context, dir string, config Config) error {
	if err := raiseOpenFiles(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(config.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := arrangeMounts(dir, config); err != nil {
		return err
	}
	for _, name := range []string{"tmp", LogDir} {
		if err := os.MkdirAll(filepath.Join(Dir, name), 0o755); err != nil {
			return err
		}
	}
	return arrangeNetwork(ctx, config)
}

// raiseOpenFiles raises the limit for the components, as far as it may be: root
// in a container often must not go beyond what it was given.
func raiseOpenFiles() error {
	limit := syscall.Rlimit{Cur: maxOpenFiles, Max: maxOpenFiles}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		return nil
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	return nil
}

// Who may pull the images whose names begin with PrivatePrefix.
const (
	PrivatePrefix = "private/"
	PullUser      = "puller"
	PullPassword  = "let-me-in"
)

// guarded answers like a registry that requires credentials for some of its repositories.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if strings.HasPrefix(r.URL.Path, "/v2/"+PrivatePrefix) && (user != PullUser || password != PullPassword) {
			w.Header().Set("WWW-Authenticate", `Basic realm="private images"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveRegistry listens on the cluster's own address only. The images' names
// are kept in memory, their content in the cluster's directory.
func serveRegistry(ctx context.Context, config Config) (*http.Server, error) {
	own := filepath.Join(Dir, "blobs")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Registry)
	if err != nil {
		return nil, fmt.Errorf("image registry: %w", err)
	}
	server := &http.Server{
		Handler: guarded(registry.New(
			registry.WithBlobHandler(blobStore{dirs: append([]string{own}, config.Blobs...)}),
			registry.Logger(log.New(io.Discard, "", 0)),
		)),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Printf("image registry ended: %v", err)
		}
	}()
	return server, nil
}
