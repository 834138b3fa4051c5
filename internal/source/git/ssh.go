package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"golang.org/x/crypto/ssh"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxSaid is how much of a server's messages is kept, in bytes.
const maxSaid = 1 << 10

// overSSH is Git's protocol with a program on the server, by SSH.
type overSSH struct {
	url    runnerapi.GitURL
	auth   Auth
	guard  egress.Guard
	limits Limits

	client  *ssh.Client
	session *ssh.Session
	in      io.WriteCloser
	out     io.Reader
	said    said
	stop    func() bool // no more closing when the context ends
}

// said keeps the beginning of the server's messages.
type said struct{ bytes.Buffer }

func (s *said) Write(p []byte) (int, error) {
	_, _ = s.Buffer.Write(p[:min(len(p), maxSaid-s.Len())])
	return len(p), nil
}

func newSSH(u runnerapi.GitURL, r Remote, l Limits) *overSSH {
	return &overSSH{url: u, auth: r.Auth, guard: r.Guard, limits: l}
}

func (s *overSSH) advertised(ctx context.Context, only *refFilter) (*packp.AdvRefs, error) {
	if err := s.dial(ctx); err != nil {
		return nil, err
	}
	refs, err := decodeAdvertised(limited(s.out, s.limits.Advertised), only, s.url.Host)
	if known, ok := errors.AsType[*Error](err); ok && known.Reason == TooLarge {
		return nil, err
	}
	if err != nil {
		return nil, s.explain(ctx)
	}
	return refs, nil
}

func (s *overSSH) dial(ctx context.Context) error {
	config, err := s.config()
	if err != nil {
		return err
	}
	conn, err := s.guard.DialContext(ctx, "tcp", s.url.Address())
	if err != nil {
		return network(err, s.url.Host)
	}
	s.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	inside, channels, requests, err := ssh.NewClientConn(conn, s.url.Address(), config)
	if err != nil {
		_ = conn.Close()
		return s.refused(ctx, err)
	}
	s.client = ssh.NewClient(inside, channels, requests)
	if s.session, err = s.client.NewSession(); err != nil {
		return network(err, s.url.Host)
	}
	if s.in, err = s.session.StdinPipe(); err != nil {
		return err
	}
	if s.out, err = s.session.StdoutPipe(); err != nil {
		return err
	}
	s.session.Stderr = &s.said
	if err := s.session.Start(service + " '" + strings.ReplaceAll(s.url.Path, "'", `'\''`) + "'"); err != nil {
		return network(err, s.url.Host)
	}
	return nil
}

func (s *overSSH) config() (*ssh.ClientConfig, error) {
	if s.auth.Key == nil {
		return nil, failed(WantsPassword, "name a Secret with url, identity (a private key) and known_hosts in credentials", "SSH needs a key")
	}
	keys := s.auth.Hosts.of(s.url.Address())
	if len(keys) == 0 {
		return nil, failed(HostKey, "add the server's line to known_hosts in the Secret, after you have compared it with what the server's operator publishes",
			"known_hosts of the Secret has no key for %s", s.url.Host)
	}
	return &ssh.ClientConfig{
		User: s.url.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(s.auth.Key)},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if slices.ContainsFunc(keys, func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), key.Marshal()) }) {
				return nil
			}
			return failed(HostKey, "find out why: the connection may be intercepted. If the server's operator says that it changed, put the new key into known_hosts of the Secret",
				"%s shows another key (%s) than known_hosts of the Secret has", s.url.Host, ssh.FingerprintSHA256(key))
		},
		HostKeyAlgorithms: algorithms(keys), Timeout: headerPatience,
	}, nil
}

// algorithms returns those by which a server can prove that it has one of the keys.
func algorithms(keys []ssh.PublicKey) []string {
	var out []string
	for _, k := range keys {
		if k.Type() == ssh.KeyAlgoRSA {
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		out = append(out, k.Type())
	}
	return out
}

// refused returns why the handshake failed.
func (s *overSSH) refused(ctx context.Context, err error) error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return known
	case ctx.Err() != nil:
		return network(ctx.Err(), s.url.Host)
	case strings.Contains(err.Error(), "unable to authenticate"): // x/crypto/ssh has no type for it
		return failed(Denied, "add the public half of the Secret's key to the repository, as a key that may read", "%s does not take the Secret's key for user %s", s.url.Host, s.url.User)
	case strings.Contains(err.Error(), "no common algorithm for host key"):
		return failed(HostKey, "add the server's keys to known_hosts in the Secret, after you have compared them", "%s has none of the kinds of keys that known_hosts of the Secret has for it", s.url.Host)
	}
	return network(err, s.url.Host)
}

// explain returns what it means that no refs came.
func (s *overSSH) explain(ctx context.Context) error {
	if ctx.Err() != nil {
		return network(ctx.Err(), s.url.Host)
	}
	_ = s.in.Close()
	_ = s.session.Wait() // so that all its output has arrived; its exit code adds nothing
	words := strings.ToLower(s.said.String())
	for _, w := range []string{"not found", "does not exist", "not appear to be a git repository", "no such", "could not be found", "not a git repository"} {
		if strings.Contains(words, w) {
			return failed(NotFound, "correct url; where the repository is private, its server says the same to who may not see it", "there is no repository %s on %s", clip(s.url.Path), s.url.Host)
		}
	}
	for _, w := range []string{"denied", "permission", "not allowed", "unauthorized", "forbidden"} {
		if strings.Contains(words, w) {
			return failed(Denied, "add the public half of the Secret's key to the repository, as a key that may read", "%s does not let the Secret's key read %s", s.url.Host, clip(s.url.Path))
		}
	}
	return failed(NotGit, "give the address that `git clone` takes", "%s gave no repository; it said %q", s.url.Host, clip(strings.TrimSpace(s.said.String())))
}

func (s *overSSH) upload(_ context.Context, request []byte) (io.ReadCloser, error) {
	if _, err := s.in.Write(request); err != nil {
		return nil, network(err, s.url.Host)
	}
	return io.NopCloser(s.out), nil
}

func (s *overSSH) close() {
	if s.stop != nil {
		s.stop()
	}
	if s.client != nil {
		_ = s.client.Close() // ends the program on the server
	}
}
