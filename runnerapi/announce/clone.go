package announce

import "time"

// Clone is another holder of an agent's identity: a copy of the agent's Secret or state directory,
// or of the whole machine or cluster.
type Clone struct {
	// ClusterUID is that of the cluster that the copy is in. Empty when it says that it
	// is in the agent's own: then machine and cluster were copied as a whole, and which
	// of the two is the original cannot be told.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Instance is what the copy calls itself: its pod's or its machine's name.
	Instance string `json:"instance,omitempty"`
	// Address is where it was seen to come from.
	Address   string    `json:"address,omitempty"`
	FirstSeen time.Time `json:"firstSeen"`
	LastSeen  time.Time `json:"lastSeen"`
}
