package controlapi

import (
	"context"
	"net"
	"net/http"
)

// The headers by which an agent's calls say where they come from.
const (
	headerCluster  = "Pipeops-Cluster"
	headerInstance = "Pipeops-Instance"
	// maxOrigin bounds each of them, in bytes.
	maxOrigin = 253
)

// Origin is where a call comes from, by the agent's own words: an identity can be
// copied to another cluster, which this tells apart. It proves nothing.
type Origin struct {
	// ClusterUID is the UID of the namespace kube-system.
	ClusterUID string
	// Instance tells the replicas of one agent apart.
	Instance string
	// Address is the host that the call came from, without the port: the agent's or
	// that of a proxy before it. The server sets it.
	Address string
}

// header puts what the agent says into a request.
func (o Origin) header(h http.Header) {
	if o.ClusterUID != "" {
		h.Set(headerCluster, o.ClusterUID)
	}
	if o.Instance != "" {
		h.Set(headerInstance, o.Instance)
	}
}

// OriginOf is where a request comes from. What is too long is not said.
func OriginOf(r *http.Request) Origin {
	o := Origin{ClusterUID: word(r.Header.Get(headerCluster)), Instance: word(r.Header.Get(headerInstance)), Address: r.RemoteAddr}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		o.Address = host
	}
	return o
}

// word drops what is no plain word: it goes into logs and lists.
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

// WithOrigin notes for a handler where its request comes from.
func WithOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), originKey{}, OriginOf(r))))
	})
}

// OriginFrom is what WithOrigin noted.
func OriginFrom(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}

// ShortPrint is a fingerprint for eyes: its first 64 bits. To make a key with the
// same ones somebody would have to make 2^64 keys.
func ShortPrint(fingerprint string) string {
	if len(fingerprint) < 16 {
		return fingerprint
	}
	return fingerprint[:4] + "-" + fingerprint[4:8] + "-" + fingerprint[8:12] + "-" + fingerprint[12:16]
}

// ShortUID is a cluster's UID for eyes.
func ShortUID(uid string) string {
	if len(uid) <= 8 {
		return uid
	}
	return uid[:8]
}
