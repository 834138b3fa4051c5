package identity

import (
	"crypto/ecdsa"
	"fmt"
	"maps"
)

// The parts of a Request, beside those of an identity.
const (
	partNextKey = "next-key.pem"
	partNextBy  = "next-by"
)

// Request is a pending certificate request. It is stored before it is sent. An agent that dies
// before the answer, or another replica in its place, then repeats it with the same key, which the
// control plane treats as the same request.
type Request struct {
	Key *ecdsa.PrivateKey
	// By is the replica that sends the request; the others wait. It is empty if no replica sends
	// it.
	By string
}

// RequestIn decodes the request from stored parts. It returns nil if there is none.
func RequestIn(parts map[string][]byte) (*Request, error) {
	if len(parts[partNextKey]) == 0 {
		return nil, nil
	}
	key, err := decodeKey(parts, partNextKey)
	if err != nil {
		return nil, err
	}
	return &Request{Key: key, By: string(parts[partNextBy])}, nil
}

// With returns the parts with the request in them.
func (r *Request) With(parts map[string][]byte) (map[string][]byte, error) {
	key, err := encodeKey(r.Key)
	if err != nil {
		return nil, fmt.Errorf("encode the agent's next key: %w", err)
	}
	all := maps.Clone(parts)
	if all == nil {
		all = map[string][]byte{}
	}
	all[partNextKey], all[partNextBy] = key, []byte(r.By)
	return all, nil
}
