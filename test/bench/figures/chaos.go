package figures

// Chaos is an hour in which everything fails.
var Chaos = &Part{Name: "chaos", Command: "make chaos", Page: "contributing/chaos.md", Definitions: []Definition{
	{"failed", "rounds that did not become quiet, or did not balance", "", atMost(0)},
	{"unbalanced", "things that do not balance", "", atMost(0)},
	{"rounds", "rounds that balanced", "", nil},
	{"faults", "faults", "", nil},
	{"kills", "kills among them", "", nil},
	{"kills.broker", "kills of RabbitMQ", "", nil},
	{"kills.database", "kills of PostgreSQL", "", nil},
	{"kills.kubernetes", "kills of Kubernetes' API server", "", nil},
	{"kills.planes", "kills of control planes", "", nil},
	{"kills.agents", "kills of agents", "", nil},
	{"acknowledged", "commands acknowledged", "", nil},
	{"refused", "commands refused", "", nil},
	{"unanswered", "commands without an answer", "", nil},
	{"heard", "announcements heard", "", nil},
	{"audited", "records of the audit log", "", nil},
	{"excused", "acknowledged commands without a record: their agent was killed before it had kept it", "", nil},
	{"objects", "objects in the cluster", "", nil},
}}
