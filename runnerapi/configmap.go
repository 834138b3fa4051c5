package runnerapi

import "time"

// ConfigMapSpec is what a Runner writes into a ConfigMap.
type ConfigMapSpec struct {
	Data map[string]string `json:"data,omitempty" doc:"Values as text, by key. Replaces all keys that were there."`
	// BinaryData holds what is not valid UTF-8; in JSON it is base64.
	BinaryData map[string][]byte `json:"binaryData,omitempty" doc:"Values as base64, by key."`
}

// ConfigMap is a ConfigMap as a Runner reads it. Unlike a Secret's, its values can be read back.
// Confidential values belong in a Secret.
type ConfigMap struct {
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Keys       []DataKey         `json:"keys" nullable:"false" doc:"The keys in alphabetical order."`
	Data       map[string]string `json:"data,omitempty" doc:"Values as text, by key. Not in a list."`
	BinaryData map[string][]byte `json:"binaryData,omitempty" doc:"Values as base64, by key. Not in a list."`
	Digest     string            `json:"digest" doc:"Changes when, and only when, the content does."`
	CreatedAt  time.Time         `json:"createdAt,omitzero"`
}

// DataKey is a key of a ConfigMap.
type DataKey struct {
	Key  string `json:"key"`
	Size int    `json:"size" doc:"Bytes of the value."`
}

// ConfigMapList is all ConfigMaps of a namespace that the agent manages, without
// their values.
type ConfigMapList struct {
	Items []ConfigMap `json:"items" nullable:"false"`
	Page
}

// Validate returns errors for keys that Kubernetes would refuse, or that occur twice.
func (s ConfigMapSpec) Validate() []FieldError {
	return SecretSpec{Data: s.Data, BinaryData: s.BinaryData}.Validate()
}
