package gitserver

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// SSH serves the same repositories by git-upload-pack.
type SSH struct {
	Address    string // HOST:PORT
	KnownHosts []byte // the server's line
	Identity   []byte // a private key that it accepts

	server *Server
	config *ssh.ServerConfig
	all    sync.WaitGroup
}

// StartSSH lets one key read the repositories, under any user name.
func (s *Server) StartSSH(t T) *SSH {
	t.Helper()
	return s.StartSSHAt(t, "127.0.0.1")
}

// StartSSHAt is like StartSSH, at another address of this machine.
func (s *Server) StartSSHAt(t T, host string) *SSH {
	t.Helper()
	key, _ := newKey(t)
	guest, identity := newKey(t)
	out := &SSH{server: s, Identity: identity}
	out.config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(guest.PublicKey().Marshal()) {
			return nil, fmt.Errorf("not this key")
		}
		return nil, nil
	}}
	out.config.AddHostKey(key)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	out.Address = listener.Addr().String()
	_, port, err := net.SplitHostPort(out.Address)
	require.NoError(t, err)
	out.KnownHosts = fmt.Appendf(nil, "[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(key.PublicKey()))
	out.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			out.all.Go(func() { out.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		out.all.Wait()
	})
	return out
}

// URL returns a repository's address.
func (s *SSH) URL(name string) string { return "ssh://git@" + s.Address + "/" + name }

func newKey(t T) (ssh.Signer, []byte) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer, pem.EncodeToMemory(block)
}

// NewKnownHosts returns a line with a key that no server has.
func (s *SSH) NewKnownHosts(t T) []byte {
	t.Helper()
	other, _ := newKey(t)
	host, port, err := net.SplitHostPort(s.Address)
	require.NoError(t, err)
	return fmt.Appendf(nil, "[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(other.PublicKey()))
}

// NewIdentity returns a key that the server refuses.
func (s *SSH) NewIdentity(t T) []byte {
	t.Helper()
	_, identity := newKey(t)
	return identity
}

var uploadPack = regexp.MustCompile(`^git-upload-pack '/?([A-Za-z0-9._/-]+)'$`)

func (s *SSH) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	inside, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return
	}
	defer func() { _ = inside.Close() }()
	s.all.Go(func() { ssh.DiscardRequests(requests) })
	for next := range channels {
		if next.ChannelType() != "session" {
			_ = next.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, asked, err := next.Accept()
		if err != nil {
			return
		}
		s.all.Go(func() { s.session(channel, asked) })
	}
}

func (s *SSH) session(channel ssh.Channel, asked <-chan *ssh.Request) {
	defer func() { _ = channel.Close() }()
	for r := range asked {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		var command struct{ Line string }
		m := []string(nil)
		if ssh.Unmarshal(r.Payload, &command) == nil {
			m = uploadPack.FindStringSubmatch(command.Line)
		}
		_ = r.Reply(true, nil)
		code := byte(128)
		if m == nil {
			_, _ = io.WriteString(channel.Stderr(), "this command is not allowed\n")
		} else if s.run(channel, m[1]) == nil {
			code = 0
		}
		_, _ = channel.SendRequest("exit-status", false, []byte{0, 0, 0, code})
		return
	}
}

// run runs git-upload-pack itself. Its input is our pipe, so that it ends with the program, whether
// or not the other side has closed its end.
func (s *SSH) run(channel ssh.Channel, name string) error {
	cmd := exec.CommandContext(context.Background(), "git-upload-pack", filepath.Join(s.server.Root, name))
	cmd.Env = []string{"GIT_CONFIG_GLOBAL=/dev/null", "HOME=" + s.server.Root, "PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.all.Go(func() {
		_, _ = io.Copy(in, channel)
		_ = in.Close()
	})
	return cmd.Wait()
}
