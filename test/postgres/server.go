package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pipeops/pipeops-vm-agent/test/debian"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

const (
	superuser    = "postgres"
	startTimeout = 5 * time.Minute
)

// Options describe the server.
type Options struct {
	// Listen are addresses to serve on besides 127.0.0.1.
	Listen []string
	// Out receives the progress; it may be nil.
	Out io.Writer
}

// Server is a running PostgreSQL. It ends with the process that started it.
type Server struct {
	dir, bin string
	listen   []string
	port     int
	password string // the superuser's
	out      io.Writer
	process  *process
	unlock   func()
}

// Start installs PostgreSQL if needed, creates a new server and waits until it responds.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if err := Install(ctx, opts.Out); err != nil {
		return nil, err
	}
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	port, err := debian.FreePort(ctx, nil)
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, port: port, password: rand.Text(), out: opts.Out, listen: append([]string{"127.0.0.1"}, opts.Listen...)}
	if s.dir, s.unlock, err = newFolder(); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make a PostgreSQL server: %w", err), s.remove())
	}
	if err := s.Restart(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// prepare writes all that the server reads.
func (s *Server) prepare(ctx context.Context) error {
	if err := selfsigned.Write(s.dir, slices.Concat([]string{"localhost"}, s.listen)...); err != nil {
		return err
	}
	if err := os.WriteFile(s.file("password"), []byte(s.password), 0o600); err != nil {
		return err
	}
	if err := give(s.dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	initdb := s.command(ctx, "initdb", "--pgdata", s.file("data"), "--username", superuser, "--pwfile", s.file("password"),
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
	if said, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w:\n%s", err, debian.Tail(said))
	}
	// Connections without TLS are refused.
	return os.WriteFile(s.file("data", "pg_hba.conf"), []byte("hostssl all all all scram-sha-256\n"), 0o600)
}

// Restart starts the server after Crash, with its data and its port.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	settings := []string{"-D", s.file("data")}
	for name, value := range map[string]string{
		"listen_addresses": strings.Join(s.listen, ","), "port": strconv.Itoa(s.port), "unix_socket_directories": "",
		"ssl": "on", "ssl_cert_file": s.file("server.crt"), "ssl_key_file": s.file("server.key"), "ssl_min_protocol_version": "TLSv1.3",
		"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "max_connections": "300",
		"log_statement": "none", "log_line_prefix": "%m [%p] %u@%d ",
	} {
		settings = append(settings, "-c", name+"="+value)
	}
	var err error
	if s.process, err = start(s.command(context.WithoutCancel(ctx), "postgres", settings...), s.LogFile()); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := s.await(ctx); err != nil {
		return errors.Join(err, s.process.end())
	}
	debian.Say(s.out, "postgres", "up on port %d", s.port)
	return nil
}

// await returns when the server responds, or has ended, or took too long.
func (s *Server) await(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := s.superuser(ctx)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.process.done:
			log, _ := os.ReadFile(s.LogFile())
			return fmt.Errorf("PostgreSQL ended while it started; its last words:\n%s", debian.Tail(log))
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not answer: %w; see %s", err, s.LogFile())
		case <-tick.C:
		}
	}
}

func (s *Server) superuser(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.url(superuser, s.password, "postgres"))
}

// Stop ends the server in order and removes all that it had.
func (s *Server) Stop() error {
	return errors.Join(s.process.end(), s.remove())
}

// Crash ends the server and its connections at once, for Restart: its data is recovered from the
// log.
func (s *Server) Crash() error { return s.process.crash() }

// CAFile returns the file of the certificate, in PEM, with which the server is verified.
func (s *Server) CAFile() string { return s.file("ca.crt") }

// LogFile returns the file of the server's log.
func (s *Server) LogFile() string { return s.file("log") }

// Port returns the port on which the server listens.
func (s *Server) Port() int { return s.port }

func (s *Server) file(path ...string) string {
	return filepath.Join(append([]string{s.dir}, path...)...)
}

func (s *Server) remove() error {
	defer s.unlock()
	return os.RemoveAll(s.dir)
}

func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + s.dir, "TZ=UTC"}
	cmd.SysProcAttr = asServer()
	return cmd
}
