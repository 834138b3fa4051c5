package traffic

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxShare bounds what one process shares, in bytes.
	MaxShare = 256 << 10
	// maxUnpacked bounds it before it is compressed.
	maxUnpacked = 8 << 20
	// maxCount bounds a number in it, so that sums do not overflow.
	maxCount = 1 << 52
	// maxName bounds a name in it.
	maxName = 253
)

// sharedHost is a host in the text that replicas share.
type sharedHost struct {
	Namespace string        `json:"n"`
	App       string        `json:"a"`
	Host      string        `json:"h"`
	Minutes   []sharedValue `json:"m,omitempty"`
	Hours     []sharedValue `json:"d,omitempty"`
}

type sharedValue struct {
	Number    int64   `json:"t"`
	Statuses  []int64 `json:"s"`
	Failed    []int64 `json:"f,omitempty"`
	Latencies []int64 `json:"l,omitempty"`
	Received  int64   `json:"i,omitempty"`
	Sent      int64   `json:"o,omitempty"`
}

// encodeShare returns the figures in the form of a Store. If they do not fit, it halves the hosts
// until they do, and those with the newest requests stay.
func encodeShare(hosts []HostValues) ([]byte, error) {
	for n := len(hosts); ; n /= 2 {
		packed, err := pack(hosts[:n])
		if err != nil || len(packed) <= MaxShare || n == 0 {
			return packed, err
		}
	}
}

func pack(hosts []HostValues) ([]byte, error) {
	shared := make([]sharedHost, len(hosts))
	for i, h := range hosts {
		shared[i] = sharedHost{h.Namespace, h.Name, h.Host, share(h.Minutes), share(h.Hours)}
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(shared); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func share(values []Value) []sharedValue {
	out := make([]sharedValue, len(values))
	for i, v := range values {
		out[i] = sharedValue{v.Number, trimmed(v.Statuses[:]), trimmed(v.Failed[:]), trimmed(v.Latencies[:]), v.Received, v.Sent}
	}
	return out
}

// trimmed leaves out the zeros at the end.
func trimmed(counts []int64) []int64 {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	return counts
}

// decodeShare reads figures from a Store, which other clients of the cluster may have written.
func decodeShare(packed []byte) ([]HostValues, error) {
	if len(packed) > MaxShare {
		return nil, fmt.Errorf("shared figures have more than %d bytes", MaxShare)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("shared figures: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err != nil {
		return nil, fmt.Errorf("shared figures: %w", err)
	}
	if len(text) > maxUnpacked {
		return nil, errors.New("shared figures are too large")
	}
	var shared []sharedHost
	if err := json.Unmarshal(text, &shared); err != nil {
		return nil, fmt.Errorf("shared figures: %w", err)
	}
	if len(shared) > MaxHosts {
		return nil, fmt.Errorf("shared figures have more than %d hosts", MaxHosts)
	}
	hosts := make([]HostValues, len(shared))
	for i, h := range shared {
		if len(h.Namespace) > maxName || len(h.App) > maxName || len(h.Host) > maxName {
			return nil, errors.New("shared figures have a name that is too long")
		}
		hosts[i].Owner = Owner{App{h.Namespace, h.App}, h.Host}
		if hosts[i].Minutes, err = unshare(h.Minutes, Hour); err != nil {
			return nil, err
		}
		if hosts[i].Hours, err = unshare(h.Hours, Day); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

func unshare(shared []sharedValue, of Span) ([]Value, error) {
	if len(shared) > of.Steps {
		return nil, errors.New("shared figures have too many steps")
	}
	values := make([]Value, len(shared))
	for i, s := range shared {
		v := &values[i]
		if len(s.Statuses) > len(v.Statuses) || len(s.Failed) > len(v.Failed) || len(s.Latencies) > len(v.Latencies) {
			return nil, errors.New("shared figures have too many counts")
		}
		copy(v.Statuses[:], s.Statuses)
		copy(v.Failed[:], s.Failed)
		copy(v.Latencies[:], s.Latencies)
		v.Number, v.Received, v.Sent = s.Number, s.Received, s.Sent
		if !v.sane() {
			return nil, errors.New("shared figures have a number that is no count")
		}
	}
	return values, nil
}

// sane reports whether the figures are counts, of which sums do not overflow.
func (f *Figures) sane() bool {
	for _, counts := range [][]int64{f.Statuses[:], f.Failed[:], f.Latencies[:], {f.Received, f.Sent}} {
		for _, n := range counts {
			if n < 0 || n > maxCount {
				return false
			}
		}
	}
	return true
}
