package runnerapi

import "time"

// SecretSpec is a Secret as a Runner writes it: values go in and never come out.
type SecretSpec struct {
	Type string            `json:"type,omitempty" enum:"Opaque,kubernetes.io/tls,kubernetes.io/dockerconfigjson" default:"Opaque" doc:"Kubernetes' Secret type."`
	Data map[string]string `json:"data,omitempty" doc:"Values as text, by key. Replaces all keys that were there."`
	// BinaryData holds what is not valid UTF-8; in JSON it is base64.
	BinaryData map[string][]byte `json:"binaryData,omitempty" doc:"Values as base64, by key."`
}

// String keeps the values out of anything that prints a SecretSpec.
func (s SecretSpec) String() string { return "SecretSpec(values hidden)" }

// GoString is like String for %#v.
func (s SecretSpec) GoString() string { return s.String() }

// Secret is a Secret as a Runner reads it: keys, sizes and a digest, no values.
type Secret struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Type      string      `json:"type"`
	Keys      []SecretKey `json:"keys" nullable:"false" doc:"The keys in alphabetical order."`
	// Digest reports whether two Secrets hold the same without telling what: an HMAC under a key
	// that never leaves the cluster.
	Digest    string    `json:"digest" doc:"Changes when, and only when, the content does."`
	CreatedAt time.Time `json:"createdAt,omitzero"`
}

// SecretKey is one key of a Secret.
type SecretKey struct {
	Key  string `json:"key"`
	Size int    `json:"size" doc:"Bytes of the value."`
}

// SecretList is all Secrets of a namespace that the agent manages.
type SecretList struct {
	Items []Secret `json:"items" nullable:"false"`
	Page
}
