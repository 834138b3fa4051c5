package git

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the hash of known_hosts, which hides names and protects nothing
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Hosts are the keys of servers, as the file known_hosts has them (sshd(8)).
// x/crypto/ssh/knownhosts reads files alone, and the agent has no place for one.
type Hosts struct{ lines []hostLine }

type hostLine struct {
	names   []string
	key     ssh.PublicKey
	revoked bool
}

// ParseHosts parses known_hosts. It refuses patterns and certificate authorities: a key must be for
// one server.
func ParseHosts(text []byte) (Hosts, error) {
	var out Hosts
	for len(text) > 0 {
		marker, names, key, _, rest, err := ssh.ParseKnownHosts(text)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return Hosts{}, fmt.Errorf("line after entry %d: %w", len(out.lines), err)
		}
		for _, name := range names {
			if strings.ContainsAny(name, "*?!") {
				return Hosts{}, fmt.Errorf("%q is a pattern; give each server a line", clip(name))
			}
		}
		if marker == "cert-authority" {
			return Hosts{}, errors.New("@cert-authority is not known here; give the server's own key")
		}
		out.lines = append(out.lines, hostLine{names, key, marker == "revoked"})
		text = rest
	}
	return out, nil
}

// of returns the keys of a server, given as HOST:PORT.
func (h Hosts) of(address string) []ssh.PublicKey {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	name := "[" + host + "]:" + port
	if port == "22" {
		name = host
	}
	var keys []ssh.PublicKey
	revoked := map[string]bool{}
	for _, line := range h.lines {
		if !line.about(name) {
			continue
		}
		if line.revoked {
			revoked[string(line.key.Marshal())] = true
			continue
		}
		keys = append(keys, line.key)
	}
	var good []ssh.PublicKey
	for _, k := range keys {
		if !revoked[string(k.Marshal())] {
			good = append(good, k)
		}
	}
	return good
}

func (l hostLine) about(name string) bool {
	return slices.ContainsFunc(l.names, func(n string) bool { return strings.EqualFold(n, name) || hashed(n, name) })
}

// hashed reports whether a name in the form |1|SALT|HASH is this one.
func hashed(entry, name string) bool {
	parts := strings.Split(entry, "|")
	if len(parts) != 4 || parts[0] != "" || parts[1] != "1" {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	want, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	_, _ = mac.Write([]byte(name)) // a hash takes everything
	return hmac.Equal(mac.Sum(nil), want)
}
