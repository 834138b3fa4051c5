// Package ext is what upstream's build puts here for its open edition: no extension.
package ext

// +k8s:deepcopy-gen=true

// HTTP adds nothing to the configuration of HTTP.
type HTTP struct{}

// DeepCopyInto copies nothing.
func (in *HTTP) DeepCopyInto(out *HTTP) { *out = *in }

// Router adds nothing to a router.
type Router struct{}
