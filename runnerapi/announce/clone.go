package announce

import "time"

// Clone is somebody who was seen with an agent's identity and is not it: a copy of
// its Secret or state directory, or of the machine or the cluster as a whole.
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
