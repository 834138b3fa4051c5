package runnerapi

// ObjectIntent describes an object that a command would create, as far as a policy can bound it.
// internal/brings computes it.
type ObjectIntent struct {
	Location string // the object's name, and its template; empty if the caller adds them
	Kind     string // KIND or KIND.GROUP; empty for the spec of an App
	// LookedUp is an object that a template reads of the cluster; the others the chart makes.
	LookedUp bool
	// Counts are the numbers of pods that it asks for.
	Counts []CountIntent
	// Containers are all that it would run: init and ephemeral containers too.
	Containers []ContainerIntent
	// Hosts are the names under which the object would be reachable from outside. They may be
	// wildcards; "*" stands for all names that no other object has.
	Hosts []NameIntent
	// Annotations are the annotation keys of the object and of what it creates, such as pods.
	Annotations []NameIntent
}

// CountIntent is a number of pods.
type CountIntent struct {
	Field string // of the object
	Pods  int32
}

// ContainerIntent is a container that an object would run.
type ContainerIntent struct {
	Field  string // of the object; empty for an App's own container
	Name   string // empty for an App's own container
	Image  string
	Limits ResourceAmounts
	// Partial reports whether the container's controller adds what is not named.
	Partial bool
}

// NameIntent is a name that an object would use.
type NameIntent struct {
	Field string // of the object
	Name  string
}
