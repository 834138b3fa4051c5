package runnerapi

// ConditionType names a condition.
type ConditionType string

// The conditions by which Kubernetes' tools read an object's state (kstatus).
const (
	ConditionReady       ConditionType = "Ready"       // the spec is fulfilled
	ConditionReconciling ConditionType = "Reconciling" // it will be; only while it is True
	ConditionStalled     ConditionType = "Stalled"     // it will not be without help; only while it is True
)

// The sides of an App that have no part in its phase.
const (
	// ConditionIngressReady of an App with an ingress: requests from outside reach the cluster.
	ConditionIngressReady ConditionType = "IngressReady"
	// ConditionScheduled of a CronJob: runs start when they are due.
	ConditionScheduled ConditionType = "Scheduled"
	// ConditionPortsReachable of an App whose ports no probe looks at: pods accept connections
	// from outside at all of them. It is there only while it is False.
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
	ReasonNotListening    = "NotListening"    // nothing listens at one of several ports
	ReasonServed          = "Served"          // of a condition that is True
	ReasonScheduleApplies = "ScheduleApplies" // likewise
)

// Condition is a condition of an App or a source, as Kubernetes' own tools read it.
//
// +kubebuilder:object:generate=true
type Condition struct {
	Type    ConditionType `json:"type" enum:"Ready,Reconciling,Stalled,IngressReady,Scheduled,PortsReachable"`
	Status  string        `json:"status" enum:"True,False"`
	Reason  string        `json:"reason" doc:"Stable name of why: of Ready, Reconciling and Stalled the diagnosis's cause or the phase; else NoAddress, NoIngressClass, NoGateway, NotPublic, HostNotServed, NoTLSSecret, BadTLSSecret, Suspended, OnlyOnLoopback, NotListening, Served or ScheduleApplies."`
	Message string        `json:"message,omitempty" doc:"What is the case, with the names that matter."`
	Fix     string        `json:"fix,omitempty" doc:"What to do, where the condition is False."`

	ObservedGeneration int64  `json:"observedGeneration,omitempty" doc:"The generation of the spec that the condition speaks of."`
	LastTransitionTime string `json:"lastTransitionTime,omitempty" doc:"When its status last changed (RFC 3339)."`
}

// Sums reports whether the condition sums up the whole object, as its phase does.
func (t ConditionType) Sums() bool {
	return t == ConditionReady || t == ConditionReconciling || t == ConditionStalled
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

// Lacks reports whether a side of an App is not as it should be, of which its phase tells nothing.
func (c Condition) Lacks() bool { return !c.Holds() && !c.Type.Sums() }
