package catalog

// announcements are errors of the connection to RabbitMQ. Its unreachable and forbidden are among
// the calls.
var announcements = []Entry{
	{
		"PO-6001", "untrusted", "Broker's certificate not trusted",
		"The broker's certificate is of another CA, for other names, or not valid at this machine's time.",
		"Name the broker's CA with --broker-ca of `pipeops-controlplane serve`, or correct the broker's URL.",
		"docs/deployer/announcements.md",
	},
	{
		"PO-6002", "bad_login", "Broker refuses the login",
		"The user or password in the broker's URL is wrong.",
		"Correct the broker's URL. For a Runner, create its credentials again.",
		"docs/operator/runners.md#rabbitmq-an-account-for-each-runner",
	},
	{
		"PO-6003", "no_exchange", "Exchange missing",
		"The control plane has not declared its exchange at this broker yet.",
		"Start the control plane with this broker and virtual host first.",
		"docs/reference/delivery.md#exchanges-and-queues",
	},
	{
		"PO-6004", "mismatch", "Queue or exchange differs",
		"A queue or exchange of this name exists with other settings.",
		"Delete it at the broker, or use another virtual host.",
		"docs/reference/delivery.md#exchanges-and-queues",
	},
	{
		"PO-6006", "rejected", "Announcement rejected",
		"The broker did not accept the message, for instance because a queue is full. It is sent again.",
		"See the broker's log, and have the reader of the full queue run.",
		"docs/deployer/announcements.md#broker-outages",
	},
	{
		"PO-6007", "lost", "Connection to the broker lost",
		"The connection to the broker ended. It is opened again by itself.",
		"Nothing, unless it stays: then see the broker's log.",
		"docs/deployer/announcements.md#broker-outages",
	},
	{
		"PO-6008", "blocked", "Broker blocks publishers",
		"The broker is short of memory or disk, and accepts no messages.",
		"Free memory or disk at the broker, or raise its watermarks.",
		"docs/deployer/announcements.md#broker-outages",
	},
	{
		"PO-6009", "unconfirmed", "Broker did not confirm",
		"The broker did not confirm a message in time. The control plane sends it again.",
		"Nothing, unless it stays: then check the broker's load.",
		"docs/deployer/announcements.md#broker-outages",
	},
}
