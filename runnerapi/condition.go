package runnerapi

// ConditionType names a side of an App that has no part in its phase.
type ConditionType string

// The conditions that an App may have.
const (
	// ConditionIngressReady of an App with an ingress: requests from outside reach the cluster.
	ConditionIngressReady ConditionType = "IngressReady"
	// ConditionScheduled of a CronJob: runs start when they are due.
	ConditionScheduled ConditionType = "Scheduled"
	// ConditionPortsReachable of an App whose ports no probe looks at: pods accept connections
	// from outside. It is there only while it is False.
	ConditionPortsReachable ConditionType = "PortsReachable"
)

// Reasons of conditions that are False.
const (
	ReasonNoAddress       = "NoAddress"      // no ingress controller has taken the Ingress up
	ReasonNoIngressClass  = "NoIngressClass" // the class that is named, or a default, is not there
	ReasonNoGateway       = "NoGateway"      // the control plane has no gateway
	ReasonNotPublic       = "NotPublic"      // the cluster owner keeps the public out
	ReasonHostNotServed   = "HostNotServed"  // the gateway does not serve the host
	ReasonNoTLSSecret     = "NoTLSSecret"
	ReasonBadTLSSecret    = "BadTLSSecret"
	ReasonSuspended       = "Suspended"       // the spec suspends the schedule
	ReasonOnlyOnLoopback  = "OnlyOnLoopback"  // a port accepts connections inside the pod alone
	ReasonServed          = "Served"          // of a condition that is True
	ReasonScheduleApplies = "ScheduleApplies" // likewise
)

// Condition is how one side of an App is that has no part in its phase.
//
// +kubebuilder:object:generate=true
type Condition struct {
	Type    ConditionType `json:"type" enum:"IngressReady,Scheduled,PortsReachable"`
	Status  string        `json:"status" enum:"True,False"`
	Reason  string        `json:"reason" doc:"Stable name of why: NoAddress, NoIngressClass, NoGateway, NotPublic, HostNotServed, NoTLSSecret, BadTLSSecret, Suspended, OnlyOnLoopback, Served or ScheduleApplies."`
	Message string        `json:"message,omitempty" doc:"What is the case, with the names that matter."`
	Fix     string        `json:"fix,omitempty" doc:"What to do, where the condition is False."`
}

// False returns a condition that does not hold.
func (t ConditionType) False(reason, message, fix string) *Condition {
	return &Condition{Type: t, Status: "False", Reason: reason, Message: message, Fix: fix}
}

// True returns a condition that holds.
func (t ConditionType) True(reason string) *Condition {
	return &Condition{Type: t, Status: "True", Reason: reason}
}

// Holds reports whether the condition is True.
func (c Condition) Holds() bool { return c.Status == "True" }
