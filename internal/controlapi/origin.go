package controlapi

import (
	"context"
	"net"
	"net/http"
)

// The headers in which an agent's calls state their origin.
const (
	headerCluster  = "Pipeops-Cluster"
	headerInstance = "Pipeops-Instance"
	// maxOrigin bounds each of them, in bytes.
	maxOrigin = 253
)

// Origin is the origin of a call as the agent states it. It tells an identity's copies in several
// clusters apart. It proves nothing.
type Origin struct {
	// ClusterUID is the UID of the namespace kube-system.
	ClusterUID string
	// Instance distinguishes the replicas of one agent.
	Instance string
	// Address is the host that the call came from, without the port: the agent's address, or that
	// of a proxy before it. The server sets it.
	Address string
}

// header adds the agent's statement to a request.
func (o Origin) header(h http.Header) {
	if o.ClusterUID != "" {
		h.Set(headerCluster, o.ClusterUID)
	}
	if o.Instance != "" {
		h.Set(headerInstance, o.Instance)
	}
}

// OriginOf returns the origin of a request. It leaves out values that are too long.
func OriginOf(r *http.Request) Origin {
	o := Origin{ClusterUID: word(r.Header.Get(headerCluster)), Instance: word(r.Header.Get(headerInstance)), Address: r.RemoteAddr}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		o.Address = host
	}
	return o
}

// word returns an empty string for anything but a plain word, because it goes into logs and lists.
func word(s string) string {
	if len(s) > maxOrigin {
		return ""
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return ""
		}
	}
	return s
}

type originKey struct{}

// WithOrigin stores the request's origin in its context for the handler.
func WithOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), originKey{}, OriginOf(r))))
	})
}

// OriginFrom returns what WithOrigin stored.
func OriginFrom(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}

// ShortPrint returns the first 64 bits of a fingerprint, for display. An attacker would have to
// make 2^64 keys to get one with the same bits.
func ShortPrint(fingerprint string) string {
	if len(fingerprint) < 16 {
		return fingerprint
	}
	return fingerprint[:4] + "-" + fingerprint[4:8] + "-" + fingerprint[8:12] + "-" + fingerprint[12:16]
}

// ShortUID returns a shortened cluster UID, for display.
func ShortUID(uid string) string {
	if len(uid) <= 8 {
		return uid
	}
	return uid[:8]
}
