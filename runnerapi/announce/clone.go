package announce

import "time"

// Clone is another holder of an agent's identity: a copy of the agent's Secret or state directory,
// or of the whole machine or cluster.
type Clone struct {
	// ClusterUID is that of the copy's cluster. It is absent if the copy reports the agent's own:
	// machine and cluster were copied as a whole, and either may be the original.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Instance is the name of the copy's pod or machine, as the copy reports it.
	Instance string `json:"instance,omitempty"`
	// Address is the IP address from which it connected.
	Address string `json:"address,omitempty"`
	// FirstSeen is the time of its first connection.
	FirstSeen time.Time `json:"firstSeen"`
	// LastSeen is the time of its last connection.
	LastSeen time.Time `json:"lastSeen"`
}
