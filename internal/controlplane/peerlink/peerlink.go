// Package peerlink connects control planes that serve one database. It hands a Runner's connection,
// still encrypted and over mutual TLS, from the control plane whose edge it reached to the one that
// has the agent's tunnel. The package does not know which one that is. A control plane passes such
// a connection only to its own tunnels, so that nothing goes in a circle.
package peerlink

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// alpn is the protocol: a request, a byte that answers it, and then the connection.
const alpn = "pipeops-peer/1"

// maxName bounds an agent's ID and an address in a request.
const maxName = 255

// What a request is answered. The numbers are the protocol's.
const (
	statusTaken        = 0
	statusNotConnected = 1
	statusBusy         = 2
	statusFailed       = 3
)

// Kind is what a connection carries.
type Kind byte

// The kinds of connections. The numbers are the protocol's.
const (
	Runner Kind = 0 // a Runner's TLS, to the Runner API
	Public Kind = 1 // public traffic, to the agent's handler for it
	Report Kind = 2 // what the control plane reports of itself; the agent's ID is its own
)

// request names the agent that a connection is for, and its sender.
type request struct {
	kind    Kind
	agentID string
	from    netip.AddrPort
}

// encode writes the kind in a byte, and two texts, each with its length in a byte before it.
func (r request) encode() ([]byte, error) {
	from := r.from.String()
	if r.agentID == "" || len(r.agentID) > maxName || len(from) > maxName {
		return nil, fmt.Errorf("%q is not an agent's ID", r.agentID)
	}
	text := append([]byte{byte(r.kind), byte(len(r.agentID))}, r.agentID...) //nolint:gosec // at most maxName
	return append(append(text, byte(len(from))), from...), nil               //nolint:gosec // at most maxName
}

var errRequest = errors.New("not a request of a control plane")

// readRequest reads what encode wrote, and not a byte more: at most 513.
func readRequest(in io.Reader) (r request, err error) {
	var kind [1]byte
	if _, err := io.ReadFull(in, kind[:]); err != nil {
		return r, err
	}
	if r.kind = Kind(kind[0]); r.kind > Report {
		return r, errRequest
	}
	if r.agentID, err = readText(in); err != nil {
		return request{}, err
	}
	from, err := readText(in)
	if err != nil {
		return request{}, err
	}
	if r.from, err = netip.ParseAddrPort(from); err != nil || r.agentID == "" {
		return request{}, errRequest
	}
	return r, nil
}

func readText(in io.Reader) (string, error) {
	var length [1]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return "", err
	}
	text := make([]byte, length[0])
	if _, err := io.ReadFull(in, text); err != nil {
		return "", err
	}
	return string(text), nil
}

const rolePath = "/controlplane/"

// URI returns the SPIFFE ID of a control plane among others.
func URI(trustDomain, peer string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: rolePath + peer}
}

// ServerName returns a control plane's name in TLS, which is not in any DNS.
func ServerName(trustDomain, peer string) string { return peer + ".controlplane." + trustDomain }

// nodeOf returns the control plane that a verified certificate names.
func nodeOf(cs tls.ConnectionState, trustDomain string) (string, error) {
	if len(cs.PeerCertificates) > 0 {
		leaf := cs.PeerCertificates[0]
		if len(leaf.URIs) == 1 && leaf.URIs[0].Scheme == "spiffe" && leaf.URIs[0].Host == trustDomain {
			if peer, ok := strings.CutPrefix(leaf.URIs[0].Path, rolePath); ok && peer != "" {
				return peer, nil
			}
		}
	}
	return "", errors.New("the certificate is not a control plane's")
}

// addrPort returns an address as a request has it.
func addrPort(addr net.Addr) netip.AddrPort {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), 0) // it is for people
	}
	return at
}
