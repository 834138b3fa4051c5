package identity

import (
	"crypto/ecdsa"
	"fmt"
	"maps"
)

// The parts of a Request, beside those of the identity there may be.
const (
	partNextKey = "next-key.pem"
	partNextBy  = "next-by"
)

// Request is a certificate that is asked for. It is stored before it is sent, so
// that an agent that dies before the answer, or another replica in its place,
// asks with the same key again, which to the control plane is the same request.
type Request struct {
	Key *ecdsa.PrivateKey
	// By is the replica that asks; the others wait. Empty when nobody does any more.
	By string
}

// RequestIn reads the request from stored parts. There is none when it is nil.
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

// With answers the parts with the request in them.
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
